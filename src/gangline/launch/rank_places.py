"""What each rank is told of its place, in the words of Horovod and torch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangline.launch.horovod_line import is_exported
from gangline.launch.hosts import RankHost

_OWN_VARIABLES = frozenset(
    "HOSTNAME TMPDIR PWD OLDPWD SHLVL _ DISPLAY SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK "
    "XDG_RUNTIME_DIR XDG_SESSION_ID HOME USER LOGNAME MAIL "
    "GANGLINE_POD_UID GANGLINE_POD_NAME GANGLINE_CONTAINER GANGLINE_RANKS_OF NVIDIA_VISIBLE_DEVICES".split()
)
"""What belongs to the launcher's machine, pod and session."""


def place_variables(
    place: RankHost, master: tuple[str, int], interfaces: Sequence[str] = ()
) -> dict[str, str]:
    """Return the variables of one rank.

    Args:
        place: where it runs.
        master: host and port at which rank 0 is to listen.
        interfaces: network interfaces; gloo takes the first, NCCL all.
    """
    variables = {
        "RANK": place.rank,
        "WORLD_SIZE": place.size,
        "LOCAL_RANK": place.local_rank,
        "LOCAL_WORLD_SIZE": place.local_size,
        "GROUP_RANK": place.node_rank,
        "MASTER_ADDR": master[0],
        "MASTER_PORT": master[1],
        "HOROVOD_HOSTNAME": place.host,
        "HOROVOD_RANK": place.rank,
        "HOROVOD_SIZE": place.size,
        "HOROVOD_LOCAL_RANK": place.local_rank,
        "HOROVOD_LOCAL_SIZE": place.local_size,
        "HOROVOD_CROSS_RANK": place.cross_rank,
        "HOROVOD_CROSS_SIZE": place.cross_size,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "PYTHONUNBUFFERED": 1,
    }
    if interfaces:
        variables["HOROVOD_GLOO_IFACE"] = interfaces[0]
        variables["NCCL_SOCKET_IFNAME"] = ",".join(interfaces)
        variables["GLOO_SOCKET_IFNAME"] = interfaces[0]
    return {name: str(value) for name, value in variables.items()}


def forwarded_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return this process's variables that ranks on other hosts get too."""
    return {
        name: value
        for name, value in environment.items()
        if is_exported(name) and name not in _OWN_VARIABLES and name.isidentifier()
    }


def master_address(
    places: Sequence[RankHost], addresses: Mapping[str, str], interface: str = "", *, all_local: bool = False
) -> str:
    """Return the address at which the other ranks find rank 0.

    Args:
        places: of all ranks.
        addresses: interface -> IPv4 address of rank 0's host.
        interface: the one that the user chose, else the host's name is used as the user wrote it.
        all_local: whether all ranks run on this machine.
    """
    if interface and interface in addresses:
        return addresses[interface]
    if all_local:
        return "127.0.0.1"
    name = places[0].host
    if name in ("localhost", "127.0.0.1", "::1"):  # the others would look for it on themselves
        return next((found for found in addresses.values() if not found.startswith("127.")), name)
    return name
