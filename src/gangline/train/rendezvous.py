"""How the ranks of a job find each other: a torch store at rank 0, and what they tell each other first.

Rank 0 binds its socket once and hands it to the store, so no port is found free and lost again. Where the
launcher named a place (MASTER_ADDR) that is used. Else the ranks of one node meet through a file that only
they know the name of, and ranks of several nodes through mpi4py. torch and mpi4py are imported late.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from gangline.errors import ClusterError, UserError
from gangline.train.environment import Ranks

LOOPBACK = "127.0.0.1"
MEETING_TIMEOUT_S = 300.0
_POLL_S = 0.01
_CONNECT_TIMEOUT_S = 3.0
_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "HOROVOD_RANK")


class RendezvousError(ClusterError):
    """The ranks of a job did not find each other."""

    code = "ranks-not-met"


def open_store(ranks: Ranks, *, turn: int = 1, timeout_s: float = MEETING_TIMEOUT_S) -> Any:
    """Return a torch store that all ranks of this job share and no other job does.

    Args:
        ranks: this rank's place.
        turn: how many sessions this process has had with this one; another one's keys may still be there.
        timeout_s: how long the others are waited for.

    Raises:
        RendezvousError: the others did not come in time, or the port is taken; the message names the place.
        UserError: nothing says how ranks on several nodes are to meet.
    """
    import torch.distributed as dist

    if ranks.size == 1:
        return dist.HashStore()
    if ranks not in _opened:
        _opened[ranks] = _open(ranks, time.monotonic() + timeout_s)
    return dist.PrefixStore(f"gangline/{ranks.job}/{turn}", _opened[ranks])


_opened: dict[Ranks, Any] = {}
"""Stays open for the next session of this process: at the same port no other one could be told from it."""


def forget_ranks() -> None:
    """Let go of what sessions of this process have left: there will be none with these ranks.

    That is stores, and torch's number of the next group. A group of all ranks that could not be made, for one
    of them was lost, has used up a number: ranks that were not as far would look for the next one elsewhere.
    """
    import torch.distributed as dist

    _opened.clear()
    if not dist.is_initialized():
        dist.distributed_c10d._world.group_count = 0


def _open(ranks: Ranks, deadline: float) -> Any:
    if ranks.master is not None:
        return _at_master(ranks, deadline)
    if ranks.local_size == ranks.size:
        return _through_file(ranks, deadline)
    if (world := _mpi_world(ranks.size)) is not None:
        return _through_mpi(ranks, world, deadline)
    raise UserError(
        f"rank {ranks.rank} of {ranks.size} ({ranks.launcher}) cannot find rank 0: no `MASTER_ADDR` "
        "is set, the ranks are on several nodes, and mpi4py is not installed",
        hint="mpirun -x MASTER_ADDR=HOST_OF_RANK_0 -x MASTER_PORT=29500 …, or pip install mpi4py",
    )


def exchange(
    store: Any,
    ranks: Ranks,
    facts: dict[str, Any],
    *,
    name: str = "facts",
    wait: Callable[[str], None] = lambda name: None,
) -> list[dict[str, Any]]:
    """Return what every rank says, in the order of the ranks; waits for all.

    Args:
        store: of all ranks.
        ranks: this rank's place.
        facts: what this one says.
        name: of the exchange, another one each time.
        wait: waits for all of that name, longer or less long than the store does.

    Raises:
        RendezvousError: some rank said nothing in time; the message names the missing ones.
    """
    store.set(f"{name}/{ranks.rank}", json.dumps(facts))
    keys = [f"{name}/{rank}" for rank in range(ranks.size)]
    wait(name)
    try:
        return [json.loads(value) for value in store.multi_get(keys)]
    except RuntimeError as error:
        missing = [rank for rank, key in enumerate(keys) if not has_key(store, key)]
        shown = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
        raise RendezvousError(
            f"rank {ranks.rank} of {ranks.size} waited for ranks that did not come: {shown or 'unknown'}",
            hint="look at their logs; each must start with the same job's variables",
        ) from error


def has_key(store: Any, key: str) -> bool:
    """Return whether a key is in a store; False also where the store is gone."""
    with suppress(RuntimeError):
        return bool(store.check([key]))
    return False


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(4096)
    return listener


def _serve(listener: socket.socket, deadline: float) -> Any:
    """Return a store whose server takes over a socket that is bound already."""
    import torch.distributed as dist

    host, port = listener.getsockname()[:2]
    connect_to = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)
    return dist.TCPStore(
        connect_to,
        port,
        is_master=True,
        timeout=_left(deadline),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def _connect(host: str, port: int, deadline: float, ranks: Ranks) -> Any:
    import torch.distributed as dist

    _wait_for_name(host, deadline, ranks)
    try:
        return dist.TCPStore(host, port, is_master=False, timeout=_left(deadline), wait_for_workers=False)
    except RuntimeError as error:
        raise RendezvousError(
            f"rank {ranks.rank} cannot reach rank 0 at {host}:{port} ({ranks.launcher})",
            hint="see whether rank 0 runs there, and whether its log says that the port is taken",
        ) from error


def _left(deadline: float) -> timedelta:
    return timedelta(seconds=max(1.0, deadline - time.monotonic()))


def _wait_for_name(host: str, deadline: float, ranks: Ranks) -> None:
    """Wait until a name resolves: rank 0's pod may be seconds younger than this one."""
    while True:
        try:
            socket.getaddrinfo(host, None)
        except OSError as error:
            if time.monotonic() > deadline:
                raise RendezvousError(
                    f"rank {ranks.rank} cannot resolve `{host}`, where rank 0 should be: {error}",
                    hint="MASTER_ADDR must be a name that every pod can resolve",
                ) from error
            time.sleep(0.25)
        else:
            return


def _at_master(ranks: Ranks, deadline: float) -> Any:
    """Meet where the launcher says; rank 0 listens there unless torchrun's agent does."""
    assert ranks.master is not None
    host, port = ranks.master
    if ranks.rank != 0 or ranks.agent_store:
        return _connect(host, port, deadline, ranks)
    everywhere = "::" if ":" in host else "0.0.0.0"
    address = LOOPBACK if host in ("localhost", LOOPBACK) else everywhere
    try:
        listener = _listen(address, port)
    except OSError as error:
        reason = "is taken by another process" if error.errno == errno.EADDRINUSE else str(error)
        raise RendezvousError(
            f"rank 0 cannot listen at {host}:{port}: the port {reason}",
            hint="set another MASTER_PORT for this job, or end the other one",
        ) from error
    return _serve(listener, deadline)


# Ranks of one node -----------------------------------------------------------------------------------------


def _through_file(ranks: Ranks, deadline: float) -> Any:
    """Meet on this node: rank 0 listens on loopback and writes its port into a file of this job's name."""
    key = f"{ranks.job}/{_launcher_process()}"  # a job's name may come back in a pod that starts again
    path = Path(tempfile.gettempdir()) / f"gangline-rendezvous-{os.getuid()}-{_digest(key)}"
    if ranks.rank == 0:
        listener = _listen(LOOPBACK, 0)
        store_port = listener.getsockname()[1]
        store = _serve(listener, deadline)
        _write_note(path, {"port": store_port, "process": process_name(os.getpid()), "pid": os.getpid()})
        try:
            store.wait([f"gangline/here/{rank}" for rank in range(1, ranks.size)], _left(deadline))
        except RuntimeError as error:
            missing = [str(r) for r in range(1, ranks.size) if not has_key(store, f"gangline/here/{r}")]
            text = f"rank 0 waited for ranks that did not come: {', '.join(missing)}"
            raise RendezvousError(text) from error
        finally:
            path.unlink(missing_ok=True)
        return store
    while (note := _read_note(path)) is None:
        if time.monotonic() > deadline:
            raise RendezvousError(
                f"rank {ranks.rank} of {ranks.size} found no rank 0 on this node: no fresh `{path}`",
                hint="rank 0 has not called init(), or the ranks do not share this folder: set MASTER_ADDR",
            )
        time.sleep(_POLL_S)
    store = _connect(LOOPBACK, note["port"], deadline, ranks)
    store.set(f"gangline/here/{ranks.rank}", "1")
    return store


def _digest(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode()).hexdigest()[:16]


def _write_note(path: Path, note: dict[str, Any]) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(note, file)
    draft.replace(path)


def _read_note(path: Path) -> dict[str, Any] | None:
    """Return rank 0's note if its writer is this user and still lives: a killed job leaves a stale one."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        note: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return note if process_name(note["pid"]) == note["process"] else None


def process_name(pid: int) -> str:
    """Return a name for a process that no later process with the same id has; ``""`` when it is gone."""
    try:
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
        try:
            os.kill(pid, 0)
        except OSError:
            return ""
        start = "?"
    return f"{pid}/{start}"


def _launcher_process() -> str:
    """Return the name of the process that started the ranks: the nearest ancestor that is no rank itself.

    Needed where a launcher gives its job no name (Hydra). A shell between launcher and rank has the rank's
    variables and is passed over.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
        if not any(entry.startswith(f"{name}=".encode()) for entry in variables for name in _RANK_VARIABLES):
            break
        pid = parent
    return process_name(pid) or str(pid)


# Ranks of several nodes ------------------------------------------------------------------------------------


def _mpi_world(size: int) -> Any:
    """Return mpi4py's world if it is the launcher's, else None."""
    if "mpi4py" not in sys.modules:
        from importlib.util import find_spec

        if find_spec("mpi4py") is None:
            return None
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    return world if world.Get_size() == size else None


def _through_mpi(ranks: Ranks, world: Any, deadline: float) -> Any:
    """Meet on several nodes: rank 0 listens on a free port and tells its addresses by an MPI broadcast."""
    if ranks.rank == 0:
        listener = _listen("0.0.0.0", 0)
        port = listener.getsockname()[1]
        store = _serve(listener, deadline)
        world.bcast((socket.gethostname(), own_addresses(), port), root=0)
        return store
    host, addresses, port = world.bcast(None, root=0)
    candidates = [LOOPBACK] if host == socket.gethostname() else [*addresses, host]
    for address in candidates:
        with suppress(OSError), socket.create_connection((address, port), _CONNECT_TIMEOUT_S):
            return _connect(address, port, deadline, ranks)
    raise RendezvousError(
        f"rank {ranks.rank} on {socket.gethostname()} reaches rank 0 on {host} at none of "
        f"{', '.join(candidates)}, port {port}",
        hint="set MASTER_ADDR to an address of rank 0's node that the others reach",
    )


def own_addresses() -> list[str]:
    """Return this node's IPv4 addresses that may be reached from elsewhere, best first."""
    found: list[str] = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # documentation address: nothing is sent
        found.append(probe.getsockname()[0])
    with suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    with suppress(OSError):
        found += [address for _, address in interface_addresses()]
    return [address for address in dict.fromkeys(found) if not address.startswith("127.")]


def interface_addresses() -> list[tuple[str, str]]:
    """Return (interface, IPv4 address) of this node's interfaces; Linux only, else empty."""
    if not sys.platform.startswith("linux"):
        return []
    import fcntl
    import struct

    siocgifaddr = 0x8915
    pairs: list[tuple[str, str]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), siocgifaddr, struct.pack("256s", name.encode()[:15]))
                pairs.append((name, socket.inet_ntoa(answer[20:24])))
    return pairs


def interface_towards(address: str) -> str:
    """Return the interface through which this node reaches an address, ``""`` when unknown."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
    except OSError:
        return ""
    if own.startswith("127."):
        return "lo"
    return next((name for name, found in interface_addresses() if found == own), "")
