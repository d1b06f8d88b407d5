"""How a group meets: which of its ranks share memory, and the sockets between their nodes."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import PrefixStore, ProcessGroupGloo

from gangline.train.collectives.connections import connected
from gangline.train.collectives.memory import (
    FOLDER,
    RANKS_MAX,
    Memory,
    memory_bytes,
    memory_domain,
    remove_leftovers,
    why_unsupported,
)
from gangline.train.collectives.staged import StagedCollectives, rooms_for
from gangline.train.collectives.wires import gloo_wire, pair_wire
from gangline.train.environment import Ranks
from gangline.train.peers import process_facts
from gangline.train.rendezvous import exchange

SWITCH = "GANGLINE_SHARED_MEMORY"
"""Variable; 0 on any rank lets everything go over gloo."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a group's ranks found out about each other.

    Attributes:
        facts: of every rank: ``node``, ``pid``, ``process``, ``memory``, ``problem``.
        staged: the collectives over shared memory, None without it.
        leaders: gloo between the first ranks of the nodes, at those.
        problem: why there is no shared memory, ``""`` where there is.
        is_worth_saying: it could be there.
    """

    facts: list[dict[str, Any]]
    staged: StagedCollectives | None = None
    leaders: Any = None
    problem: str = ""
    is_worth_saying: bool = False


def meet(
    store: Any, rank: int, size: int, names: Sequence[int], timeout: timedelta, *, is_wanted: bool = True
) -> Meeting:
    """Meet the other ranks of a group; all come to the same answer.

    Args:
        store: of the group.
        rank: in the group.
        size: of the group.
        names: the ranks' numbers in the job.
        timeout: of a collective.
        is_wanted: shared memory may be used.
    """
    ranks = Ranks(rank, size)
    is_wanted = is_wanted and os.environ.get(SWITCH, "1") != "0"
    domain = memory_domain() if is_wanted else ""
    own = {"memory": domain, "problem": why_unsupported() if is_wanted else "switched off"}
    facts = exchange(store, ranks, process_facts() | own, name="memory-facts")
    nodes = nodes_of([str(one["memory"]) for one in facts])
    if problem := _unsuited(facts, nodes, size):
        return Meeting(facts, problem=problem)
    number, mine = next((number, one) for number, one in enumerate(nodes) if rank in one)
    memory, problem = _open_memory(store, rank, mine, [names[one] for one in mine], len(nodes))
    said = exchange(store, ranks, {"problem": problem}, name="memory-opened")
    if memory is not None and rank == mine[0]:
        memory.unlink()
    found = next((f"rank {names[at]}: {one['problem']}" for at, one in enumerate(said) if one["problem"]), "")
    if found or memory is None:
        if memory is not None:
            memory.close()
        return Meeting(facts, problem=found, is_worth_saying=True)
    memory.timeout_s = timeout.total_seconds()
    leaders = None
    if len(nodes) > 1 and rank == mine[0]:
        between = PrefixStore("leaders", store)
        leaders = connected(lambda: ProcessGroupGloo(between, number, len(nodes), timeout))
    wire = None
    if leaders is not None:
        wire = pair_wire(leaders, number) if len(nodes) == 2 else gloo_wire(leaders)
    return Meeting(facts, StagedCollectives(memory, rank, nodes, wire), leaders)


def nodes_of(domains: Sequence[str]) -> list[list[int]]:
    """Return the ranks that share memory, node by node in the order of their first ranks.

    Args:
        domains: a name for each rank's memory, the same for ranks that see the same one; "" without.
    """
    nodes: dict[str, list[int]] = {}
    for rank, domain in enumerate(domains):
        nodes.setdefault(domain or f"rank {rank}", []).append(rank)
    return [*nodes.values()]


def _unsuited(facts: list[dict[str, Any]], nodes: list[list[int]], size: int) -> str:
    if size == 1:
        return ""
    largest = max(map(len, nodes))
    if largest > RANKS_MAX:
        return f"a node has {largest} ranks, more than {RANKS_MAX}"
    if largest > 1:
        return ""
    problems = (f"rank {rank}: {one['problem']}" for rank, one in enumerate(facts) if one["problem"])
    return next(problems, "no two ranks share a node")


def _open_memory(
    store: Any, rank: int, mine: list[int], names: list[int], nodes: int
) -> tuple[Memory | None, str]:
    own, size, rooms = mine.index(rank), len(mine), rooms_for(nodes)
    try:
        if size == 1:
            return Memory(None, 0, 1, rooms=rooms, names=names), ""
        if own == 0:
            remove_leftovers()
            path = FOLDER / f"gangline-{os.getuid()}-{uuid.uuid4().hex[:16]}"
            try:
                return Memory(path, 0, size, rooms=rooms, create=True, names=names), ""
            finally:
                store.set(f"memory-at/{mine[0]}", str(path))
        path = Path(store.get(f"memory-at/{mine[0]}").decode())
        return Memory(path, own, size, rooms=rooms, names=names), ""
    except OSError as error:
        if error.errno == errno.ENOSPC:
            mib = memory_bytes(size, rooms) / 2**20
            return None, f"{FOLDER} has no room for {mib:.0f} MiB (docker run --shm-size, a volume in memory)"
        return None, f"shared memory in {FOLDER}: {error.strerror or error}"


def free(meeting: Meeting) -> None:
    """Let the memory go and close the sockets between nodes."""
    if meeting.staged is not None:
        meeting.staged.memory.close()
    if meeting.leaders is not None:
        with suppress(RuntimeError):
            meeting.leaders.shutdown()
