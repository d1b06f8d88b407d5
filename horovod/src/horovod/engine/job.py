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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gangline.train.elastic.board import Board
from gangline.train.elastic.loss_watch import LossWatch
from gangline.train.environment import Ranks, read_ranks
from gangline.train.rendezvous import (
    MEETING_TIMEOUT_S,
    exchange,
    forget_ranks,
    interface_towards,
    open_store,
    own_addresses,
)
from gangline.train.unless_lost import unless_lost
from horovod.engine.agreement import ADD_SET, REMOVE_SET, Request
from horovod.engine.collectives import Collectives, Group
from horovod.engine.engine import Engine
from horovod.engine.generations import MEETING_LIMIT_S, begin_in_next, board
from horovod.engine.links import meet
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
    loss_watch: LossWatch | None = None


_job: Job | None = None
_turns = 0
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
        if (shown := board()) is not None:
            if members is not None:
                raise ValueError(
                    "init(comm=...): the ranks of an elastic job are those that its launcher has"
                )
            _job = begin_in_next(
                shown, lambda told: _meet(told, shown.generation, shown, dynamic_sets), _leave
            )
        else:
            told = read_ranks(os.environ)
            _turns += 1
            _job = _meet(told if members is None else chosen(told, members), _turns, None, dynamic_sets)
        atexit.register(end)
        return True


def _meet(told: Ranks, turn: int, shown: Board | None, dynamic_sets: bool) -> Job:
    """Return the job, after all its ranks have met.

    Args:
        told: this rank's place, as the launcher says it.
        turn: how many jobs there have been of these ranks.
        shown: the board of an elastic job.
        dynamic_sets: process sets may be added later.
    """
    settings = read_settings()
    limit_s, is_lost = MEETING_TIMEOUT_S, None
    if shown is not None:
        settings = replace(settings, elastic=True)
        limit_s, is_lost = MEETING_LIMIT_S, shown.has_lost
    store = unless_lost(lambda: open_store(told, turn=turn, timeout_s=limit_s), is_lost)
    own = _own_facts(told)
    facts = unless_lost(lambda: exchange(store, told, own), is_lost)
    topology = place(told, facts)
    owns = topology.size > 1 and _make_process_group(topology, facts, store, is_lost)
    alone = topology.local_size == topology.size
    addresses = ["127.0.0.1"] if alone else facts[0]["addresses"]
    listen_at = "127.0.0.1" if alone else "0.0.0.0"
    link = unless_lost(
        lambda: meet(topology.rank, topology.size, settings, store, addresses, listen_at), is_lost
    )
    job = _with_engine(topology, settings, link, owns, _backends(facts), dynamic_sets)
    if shown is not None:
        job.loss_watch = LossWatch(shown, job.engine.give_up)
        job.loss_watch.start()
    return job


def _own_facts(told: Ranks) -> dict[str, Any]:
    import torch

    return {
        "node": os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname(),
        "local_rank": told.local_rank,
        "local_size": told.local_size,
        "addresses": own_addresses(),
        "cuda": torch.cuda.is_available() and torch.distributed.is_nccl_available(),
    }


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
        return Group(ranks, group_place, handle, _sharing(handle)) if is_member else Group(ranks, group_place)

    collectives = Collectives()
    everyone = tuple(range(topology.size))
    if owns or topology.size == 1:
        shared = _sharing(_default_group()) if owns else None
        collectives.groups[GLOBAL_SET] = Group(everyone, topology.rank, None, shared)
    else:
        collectives.groups[GLOBAL_SET] = make_group(everyone)
    timeline = Timeline()
    if settings.timeline not in ("", "DYNAMIC") and topology.rank == 0:
        timeline.start(settings.timeline, mark_cycles=settings.mark_cycles)
    engine = Engine(link, collectives, settings, make_group, timeline)
    return Job(topology, engine, owns, dynamic_sets or settings.dynamic_sets)


def _default_group() -> Any:
    import torch.distributed as dist

    return dist.group.WORLD


def _sharing(group: Any) -> Any:
    """Return a process group where it is Gangline's and its ranks share memory, else None."""
    from gangline.train.collectives.group import CollectiveGroup

    return group if isinstance(group, CollectiveGroup) and not group.no_shared_memory else None


def _backends(facts: Sequence[dict[str, Any]]) -> str:
    """Return torch's name for the backends: Gangline's own for CPUs where it is registered, else gloo."""
    import torch.distributed as dist

    cpu = os.environ.get("HOROVOD_TORCH_BACKEND") or (
        "gangline" if "gangline" in dist.Backend.backend_list else "gloo"
    )
    # With nccl beside it torch wants a backend that is no process group of its own.
    cpu = "gloo" if cpu == "gangline" and all(fact["cuda"] for fact in facts) else cpu
    return f"cpu:{cpu},cuda:nccl" if all(fact["cuda"] for fact in facts) else cpu


def _make_process_group(
    topology: Topology,
    facts: Sequence[dict[str, Any]],
    store: Any,
    is_lost: Callable[[], bool] | None,
) -> bool:
    """Make torch's default process group; False where the script has made one of these ranks."""
    import torch.distributed as dist

    from gangline.train.collectives.rank_group import RankGroup

    if dist.is_initialized():
        if (dist.get_rank(), dist.get_world_size()) != (topology.rank, topology.size):
            raise ValueError(
                f"torch.distributed calls this process rank {dist.get_rank()} of "
                f"{dist.get_world_size()}, the "
                f"launcher rank {topology.rank} of {topology.size}"
            )
        return False
    _choose_interface(topology, facts)
    RankGroup.is_lost = is_lost
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
        if job.loss_watch is not None:
            job.loss_watch.close()
        _leave(owns_process_group=job.owns_process_group)


def _leave(*, owns_process_group: bool = True) -> None:
    """Let go of what the ranks have in common."""
    import torch.distributed as dist

    if owns_process_group and dist.is_initialized():
        with suppress(RuntimeError, ValueError):
            dist.destroy_process_group()
    if board() is not None:
        forget_ranks()
