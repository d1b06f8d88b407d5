"""What a Python program is told of a job that it follows: its log, and how the calls of its ranks ended."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gangline.client.functions import RankError, RanksFailedError, Results
from gangline.client.notices import Say, silent
from gangline.client.run.advice import advice_for
from gangline.client.run.result import failure_of
from gangline.workloads.job_outcome import JobOutcome
from gangline.workloads.job_start import JobRef, job_ref
from gangline.workloads.pending import PendingReason

Obj = dict[str, Any]
T = TypeVar("T")


class FollowedJob(Generic[T]):
    """The view that a follower tells.

    Args:
        write: takes text of the log as it comes; pieces do not end where lines end.
        say: is told why pods wait, and what happens to them.
        changed: is called when the job or a pod changed.

    Attributes:
        results: of the calls of its ranks.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        say: Say = silent,
        changed: Callable[[Obj, list[Obj]], None] = lambda job, pods: None,
    ) -> None:
        self.results: Results[T] = Results()
        self.pods_changed = changed
        self._write, self._say = write, say
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def pending_reason_of(self, job: Obj, pod: Obj, reason: PendingReason) -> None:
        """Say why a pod cannot start, and what to do."""
        self._say(f"{job_ref(job)}: {reason}")
        if advice := advice_for(job, pod, reason):
            self._say(f"hint: {advice}")

    def notice(self, job: JobRef, text: str) -> None:
        """Say what happens to a job that runs."""
        self._say(f"{job}: {text}")

    def log(self, job: JobRef, data: bytes) -> None:
        """Write a piece of the log; characters that end in the next piece wait for it."""
        if text := self._decoder.decode(data):
            self._write(text)

    def record(self, job: JobRef, record: Obj) -> None:
        """Keep what a rank sends of its result."""
        self.results.take(record)


def returned(results: Results[T], outcome: JobOutcome) -> list[T]:
    """Return what the ranks returned, by rank.

    Raises:
        RanksFailedError: some rank raised, or ended without a result.
    """
    values, errors = results.returned(), results.raised()
    failure = failure_of(outcome)
    if failure is None and not errors and results.is_complete:
        return [values[rank] for rank in range(results.ranks)]
    title = job_ref(outcome.job)
    first: RankError | None = errors[min(errors)] if errors else None
    if first is not None:
        others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        message = f"{title} failed: rank {first.rank} raised {first.kind}: {first.message}{others}"
    elif failure is not None:
        message = failure.message
    else:
        message = f"{title} ended, and not all its ranks returned: they have {sorted(values)}"
    raise RanksFailedError(
        message, errors=errors, results=values, exit_code=failure.exit_code if failure else 1
    ) from first
