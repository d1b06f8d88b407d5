"""The job that this process is a rank of: begun by `init`, ended by `shutdown`, asked for by everything
else.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.train.environment import Ranks, read_ranks
from gangline.train.rendezvous import exchange, interface_towards, open_store, own_addresses
from horovod.engine.agreement import ADD_SET, REMOVE_SET, Request
from horovod.engine.collectives import Collectives, Group
from horovod.engine.engine import Engine
from horovod.engine.links import meet
from horovod.engine.membership import agree_on_members, report_lost, wait_for
from horovod.engine.settings import Settings, read_settings
from horovod.engine.timeline import Timeline
from horovod.engine.topology import Topology, chosen, place

GLOBAL_SET = 0


@dataclass(slots=True)
class Job:
    """A job that has begun."""

    topology: Topology
    engine: Engine
    owns_process_group: bool
    dynamic_sets: bool


_job: Job | None = None
_turns = 0
_members: tuple[int, ...] = ()
"""Of an elastic job: the ranks that it has now, as the launcher calls them."""
_lock = threading.Lock()


def current() -> Job:
    """Return the job.

    Raises:
        ValueError: it has not begun.
    """
    if _job is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _job


def is_initialized() -> bool:
    """Return whether the job has begun."""
    return _job is not None


def begin(members: Sequence[int] | None = None, *, dynamic_sets: bool = False) -> bool:
    """Begin the job: meet the other ranks, make torch's process group unless the script did.

    Args:
        members: ranks of the job, None for all that were started.
        dynamic_sets: process sets may be added later; so does ``HOROVOD_DYNAMIC_PROCESS_SETS=1``.

    Returns:
        False where it had begun before.

    Raises:
        gangline.errors.UserError: the launcher's variables contradict each other.
        gangline.errors.ClusterError: the other ranks did not come.
    """
    global _job, _turns
    with _lock:
        if _job is not None:
            return False
        settings = read_settings()
        told = read_ranks(os.environ)
        if members is not None:
            told = chosen(told, members)
        _turns += 1
        store = open_store(told, turn=_turns)
        if settings.elastic and told.size > 1:
            told, facts = _meet_survivors(told, store, settings)
        else:
            facts = exchange(store, told, _own_facts(told))
        topology = place(told, facts)
        owns = topology.size > 1 and _make_process_group(topology, facts, store)
        backend = _backends(facts)
        alone = topology.local_size == topology.size
        link = meet(
            *(topology.rank, topology.size, settings, store),
            ["127.0.0.1"] if alone else facts[0]["addresses"],
            "127.0.0.1" if alone else "0.0.0.0",
            _reporter() if settings.elastic and _members else None,
        )
        _job = _with_engine(topology, settings, link, owns, backend, dynamic_sets)
        atexit.register(end)
        return True


def _reporter() -> Callable[[int], None]:
    """Return what rank 0's coordinator does when a connection ends."""
    whole, members = open_store(read_ranks(os.environ), turn=0), _members

    def report(rank: int) -> None:
        with suppress(RuntimeError):  # the launcher has gone too
            report_lost(whole, members[rank])

    return report


def _own_facts(told: Ranks) -> dict[str, Any]:
    import torch

    return {
        "node": os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname(),
        "local_rank": told.local_rank,
        "local_size": told.local_size,
        "addresses": own_addresses(),
        "cuda": torch.cuda.is_available() and torch.distributed.is_nccl_available(),
    }


def _meet_survivors(told: Ranks, store: Any, settings: Settings) -> tuple[Ranks, list[dict[str, Any]]]:
    """Meet those of the turn before that were not lost; return this rank's place and their facts."""
    global _members
    whole = open_store(told, turn=0)
    timeout_s = settings.elastic_timeout_s
    before = _members or tuple(range(told.size))
    _members = agree_on_members(whole, _turns, told.rank, before, timeout_s)
    told = chosen(told, _members)

    def wait(name: str) -> None:
        wait_for(whole, store, name, _members, timeout_s)

    return told, exchange(store, told, _own_facts(told), wait=wait)


def _with_engine(
    topology: Topology, settings: Settings, link: Any, owns: bool, backend: str, dynamic_sets: bool
) -> Job:
    def make_group(ranks: tuple[int, ...]) -> Group:
        is_member = topology.rank in ranks
        group_place = ranks.index(topology.rank) if is_member else -1
        if len(ranks) == 1:
            return Group(ranks, group_place)
        import torch.distributed as dist

        handle = dist.new_group(ranks, backend=backend)
        return Group(ranks, group_place, handle if is_member else None)

    collectives = Collectives()
    everyone = tuple(range(topology.size))
    if owns or topology.size == 1:
        collectives.groups[GLOBAL_SET] = Group(everyone, topology.rank)
    else:
        collectives.groups[GLOBAL_SET] = make_group(everyone)
    timeline = Timeline()
    if settings.timeline not in ("", "DYNAMIC") and topology.rank == 0:
        timeline.start(settings.timeline, mark_cycles=settings.mark_cycles)
    engine = Engine(link, collectives, settings, make_group, timeline)
    return Job(topology, engine, owns, dynamic_sets or settings.dynamic_sets)


def _backends(facts: Sequence[dict[str, Any]]) -> str:
    """Return torch's name for the backends: Gangline's own for CPUs where it is registered, else gloo."""
    import torch.distributed as dist

    cpu = os.environ.get("HOROVOD_TORCH_BACKEND") or (
        "gangline" if "gangline" in dist.Backend.backend_list else "gloo"
    )
    # With nccl beside it torch wants a backend that is no process group of its own.
    cpu = "gloo" if cpu == "gangline" and all(fact["cuda"] for fact in facts) else cpu
    return f"cpu:{cpu},cuda:nccl" if all(fact["cuda"] for fact in facts) else cpu


def _make_process_group(topology: Topology, facts: Sequence[dict[str, Any]], store: Any) -> bool:
    """Make torch's default process group; False where the script has made one of these ranks."""
    import torch.distributed as dist

    if dist.is_initialized():
        if (dist.get_rank(), dist.get_world_size()) != (topology.rank, topology.size):
            raise ValueError(
                f"torch.distributed calls this process rank {dist.get_rank()} of "
                f"{dist.get_world_size()}, the "
                f"launcher rank {topology.rank} of {topology.size}"
            )
        return False
    _choose_interface(topology, facts)
    dist.init_process_group(
        _backends(facts),
        store=dist.PrefixStore("torch", store),
        rank=topology.rank,
        world_size=topology.size,
    )
    return True


def _choose_interface(topology: Topology, facts: Sequence[dict[str, Any]]) -> None:
    """Tell gloo its interface unless the user did: a host's own name often leads to loopback or nowhere."""
    name = os.environ.get("HOROVOD_GLOO_IFACE", "")
    others = [fact["addresses"] for fact in facts if fact["node"] != facts[topology.rank]["node"]]
    if not name and others:
        name = interface_towards(others[0][0]) if others[0] else ""
    elif not name and Path("/sys/class/net/lo").exists():
        name = "lo"
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def add_set(ranks: Sequence[int]) -> int:
    """Add a process set on all ranks and return its number.

    Raises:
        HorovodInternalError: the ranks do not agree, or there is such a set.
    """
    name = f"process_set.{','.join(map(str, ranks))}"
    return current().engine.ask(Request(name, ADD_SET, splits=tuple(ranks)))


def remove_set(number: int) -> int:
    """Remove a process set on all ranks.

    Raises:
        HorovodInternalError: the ranks do not agree, or there is no such set.
    """
    return current().engine.ask(Request(f"process_set.{number}", REMOVE_SET, root=number))


def end() -> None:
    """End the job; nothing where none has begun. Others that wait for this rank get an error."""
    global _job
    with _lock:
        job, _job = _job, None
        if job is None:
            return
        atexit.unregister(end)
        job.engine.close()
        if job.owns_process_group:
            import torch.distributed as dist

            with suppress(RuntimeError, ValueError):
                dist.destroy_process_group()
