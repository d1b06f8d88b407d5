"""Process sets: some of the ranks, which then have collectives of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from horovod.common.exceptions import HorovodInternalError
from horovod.engine import job


class ProcessSet:
    """Some of a job's ranks.

    Args:
        ranks_or_comm: ranks, or a communicator of mpi4py.

    Raises:
        ValueError: it is neither.

    Attributes:
        ranks: in order; None for the global set before `init`.
        process_set_id: None until it was given to `init` or `add_process_set`, and after it was removed.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None

    def __init__(self, ranks_or_comm: Iterable[int] | Any) -> None:
        ranks = ranks_of(ranks_or_comm)
        if not all(isinstance(rank, int) for rank in ranks):
            raise ValueError(f"a ProcessSet is made of ranks, not of {ranks}")
        self.ranks = sorted(ranks)

    def size(self) -> int | None:
        """Return the number of ranks, None while it is in no job."""
        return len(self.ranks) if self.process_set_id is not None and self.ranks is not None else None

    def rank(self) -> int | None:
        """Return this rank's place in the set, None while it is in no job.

        Raises:
            ValueError: this rank is not in the set.
        """
        if self.process_set_id is None or self.ranks is None:
            return None
        own = job.current().topology.rank
        if own not in self.ranks:
            raise ValueError(f"rank {own} is not in the process set {self.ranks}")
        return self.ranks.index(own)

    def included(self) -> bool | None:
        """Return whether this rank is in the set."""
        return None if self.ranks is None else job.current().topology.rank in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def ranks_of(ranks_or_comm: Iterable[int] | Any) -> list[int]:
    """Return the ranks that a list, or a communicator of mpi4py, has.

    Raises:
        ValueError: it is neither.
    """
    if hasattr(ranks_or_comm, "allgather"):
        from gangline.train.environment import read_ranks

        return list(ranks_or_comm.allgather(read_ranks(_environment()).rank))
    try:
        return list(ranks_or_comm)
    except TypeError:
        raise ValueError(
            f"wanted a list of ranks or a communicator of mpi4py, not {ranks_or_comm!r}"
        ) from None


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


global_process_set = ProcessSet([])
global_process_set.process_set_id = job.GLOBAL_SET
global_process_set.ranks = None
_added: list[ProcessSet] = []


def begin_sets(sets: Sequence[ProcessSet]) -> None:
    """Give every set its number, in the same order on all ranks."""
    global_process_set.ranks = list(range(job.current().topology.size))
    for one in sets:
        _add(one)


def end_sets() -> None:
    """Take the numbers of all sets back: the job has ended."""
    for one in _added:
        one.process_set_id = None
    _added.clear()


def _add(one: ProcessSet) -> None:
    assert one.ranks is not None
    everyone = list(range(job.current().topology.size))
    if len(set(one.ranks)) < len(one.ranks):
        raise ValueError(f"a process set has every rank once: {one.ranks}")
    if one.process_set_id is not None or one.ranks == everyone:
        raise ValueError(f"there is a process set of these ranks already: {one}")
    try:
        one.process_set_id = job.add_set(one.ranks)
    except HorovodInternalError as error:
        raise ValueError(str(error)) from error
    _added.append(one)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Add a process set while the job runs; called on all ranks.

    Raises:
        ValueError: there is one of these ranks, ranks do not agree, or sets may not be added: that is
        asked for
            by ``HOROVOD_DYNAMIC_PROCESS_SETS=1`` or ``init(process_sets="dynamic")``.
    """
    one = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    _check_dynamic()
    _add(one)
    return one


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set; called on all ranks. Return whether it was one that can be removed."""
    number = process_set.process_set_id
    if number is None or number == job.GLOBAL_SET:
        return False
    _check_dynamic()
    job.remove_set(number)
    process_set.process_set_id = None
    if process_set in _added:
        _added.remove(process_set)
    return True


def _check_dynamic() -> None:
    if not job.current().dynamic_sets:
        raise ValueError(
            "process sets cannot be added or removed in this job: set "
            "HOROVOD_DYNAMIC_PROCESS_SETS=1, or call "
            'hvd.init(process_sets="dynamic")'
        )
