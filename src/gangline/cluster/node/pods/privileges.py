"""What a container may do: its user and groups, its capabilities, from both security contexts. Pure.

Only in ``network`` isolation does the agent have several users to choose from.
"""

from __future__ import annotations

from typing import Any

from gangline.api.core import Container, Pod
from gangline.cluster.images.image import ContainerUser, Image
from gangline.cluster.node.isolation import Isolation
from gangline.cluster.node.shim.syscalls import KEPT_CAPABILITIES

CAPABILITY_NAMES = {
    0: "CHOWN",
    1: "DAC_OVERRIDE",
    3: "FOWNER",
    4: "FSETID",
    5: "KILL",
    6: "SETGID",
    7: "SETUID",
    8: "SETPCAP",
    10: "NET_BIND_SERVICE",
    12: "NET_ADMIN",
    13: "NET_RAW",
    14: "IPC_LOCK",
    18: "SYS_CHROOT",
    19: "SYS_PTRACE",
    23: "SYS_NICE",
    24: "SYS_RESOURCE",
    29: "AUDIT_WRITE",
    31: "SETFCAP",
}
"""Those that a container may have; the rest would be in charge of the machine. Source: linux/capability.h."""

OF_OWN_NETWORK = frozenset({12})
"""Added only in a network of the pod's own: on the machine's they would change the machine's."""

SAFE_SYSCTLS = frozenset(
    "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies net.ipv4.ping_group_range "
    "net.ipv4.ip_unprivileged_port_start net.ipv4.ip_local_reserved_ports net.ipv4.tcp_keepalive_time "
    "net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl net.ipv4.tcp_keepalive_probes net.ipv4.tcp_rmem "
    "net.ipv4.tcp_wmem".split()
)
"""Those that Kubernetes lets every pod set. Source: Kubernetes documentation, "Using sysctls", safe set."""


def uid_of(pod: Pod, container: Container) -> int | None:
    """Return the user id that a container asks for, None for its image's."""
    own = container.security_context.run_as_user
    return pod.spec.security_context.run_as_user if own is None else own


def user_of(
    pod: Pod, container: Container, isolation: Isolation, image_user: ContainerUser
) -> dict[str, Any] | None:
    """Return the user that the container runs as, None for the agent's own. Only root can choose."""
    if isolation != "network":
        return None
    uid, context = uid_of(pod, container), pod.spec.security_context
    gid = container.security_context.run_as_group
    gid = context.run_as_group if gid is None else gid
    groups = list(context.supplemental_groups)
    if context.fs_group is not None:
        groups.append(context.fs_group)
    if uid is None:
        uid, gid = image_user.uid, image_user.gid if gid is None else gid
        if context.supplemental_groups_policy != "Strict":
            groups = [*image_user.groups, *groups]
    return {"uid": uid, "gid": gid or 0, "groups": groups}


def must_not_be_root(pod: Pod, container: Container) -> bool:
    """Return whether a container asks not to run as root."""
    own = container.security_context.run_as_non_root
    return bool(pod.spec.security_context.run_as_non_root if own is None else own)


def refusal_of_user(pod: Pod, container: Container, image: Image, user: dict[str, Any] | None) -> str:
    """Return why a container that asks not to run as root cannot start, empty when it can.

    Which user an image names is known of images with files of their own only.
    """
    if user is None or user["uid"] != 0 or not must_not_be_root(pod, container):
        return ""
    if uid_of(pod, container) is None:
        return "container has runAsNonRoot and image will run as root" if image.is_whole else ""
    return "container's runAsUser breaks non-root policy"


def capabilities_of(container: Container, *, own_network: bool) -> list[int]:
    """Return the numbers of the capabilities that a container of root has."""
    wanted = container.security_context.capabilities
    numbers = {name: number for number, name in CAPABILITY_NAMES.items()}
    dropped = {_short(name) for name in wanted.drop}
    added = {_short(name) for name in wanted.add}
    held = frozenset() if "ALL" in dropped else KEPT_CAPABILITIES
    held -= {number for name, number in numbers.items() if name in dropped}
    found = frozenset(number for name, number in numbers.items() if name in added or "ALL" in added)
    return sorted(held | (found if own_network else found - OF_OWN_NETWORK))


def _short(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def forbidden_sysctl(pod: Pod) -> str:
    """Return the name of a kernel setting that the pod may not have, empty for none."""
    for item in pod.spec.security_context.sysctls:
        name = item["name"].replace("/", ".")
        if name not in SAFE_SYSCTLS or (pod.spec.host_network and name.startswith("net.")):
            return name
    return ""
