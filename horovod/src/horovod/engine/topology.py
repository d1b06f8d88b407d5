"""Where a rank stands among the others: on its host, and among those of its kind on other hosts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gangline.train.environment import Ranks, complete


@dataclass(frozen=True, slots=True)
class Topology:
    """A rank's place.

    Attributes:
        local_rank: among the ranks of this host; `local_size` are there.
        cross_rank: among the hosts that have such a local rank; `cross_size` are there.
        is_homogeneous: every host has the same number of ranks.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    is_homogeneous: bool


def place(told: Ranks, facts: Sequence[dict[str, Any]]) -> Topology:
    """Return a rank's whole place.

    Args:
        told: what its launcher said.
        facts: of every rank: ``node``, the name of its host, and ``local_rank``, ``local_size`` as its
        launcher
            said them or None.
    """
    nodes = [str(fact["node"]) for fact in facts]
    everyone = [
        complete(
            replace(told, rank=rank, local_rank=fact["local_rank"], local_size=fact["local_size"]), nodes
        )
        for rank, fact in enumerate(facts)
    ]
    own = everyone[told.rank]
    alike = [one.rank for one in everyone if one.local_rank == own.local_rank]
    return Topology(
        *(own.rank, own.size, own.local_rank or 0, own.local_size or 1),
        *(alike.index(own.rank), len(alike), len({one.local_size for one in everyone}) == 1),
    )


def chosen(told: Ranks, ranks: Sequence[int]) -> Ranks:
    """Return a rank's place in a job of some of the ranks only.

    Raises:
        ValueError: it is none of them.
    """
    members = sorted(set(ranks))
    if told.rank not in members or members[-1] >= told.size:
        raise ValueError(
            f"rank {told.rank} of {told.size} is not among the ranks {members} that init(comm=...) names"
        )
    if len(members) == told.size:
        return told
    job = f"{told.job}/{','.join(map(str, members))}"
    return Ranks(members.index(told.rank), len(members), launcher=told.launcher, job=job, master=told.master)
