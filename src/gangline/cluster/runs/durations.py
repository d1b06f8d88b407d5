"""How long jobs took that have ended, and how long one like them may run yet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import msgspec

from gangline.clock import parse_time
from gangline.cluster.runs.record import RunRecord
from gangline.workloads.job_state import ended_at, expected_pods, requested_gpus

Obj = dict[str, Any]

ENDED_MIN = 3
"""Of fewer ended jobs nothing is concluded."""


class JobScale(msgspec.Struct, frozen=True):
    """Whose job it is, and how large: jobs that agree in it are alike.

    Attributes:
        namespace: of the job; its objects name no other user.
        gpus: that all of its pods ask for.
        pods: how many it has, where it asks for no GPU; else 0.
    """

    namespace: str
    gpus: int
    pods: int

    @classmethod
    def of(cls, job: Obj) -> JobScale:
        """Return the size of a job in wire form."""
        gpus = requested_gpus(job)
        return cls(job["metadata"].get("namespace", ""), gpus, 0 if gpus else expected_pods(job))


class EndedRun(msgspec.Struct, frozen=True):
    """A job that is over.

    Attributes:
        uid: its identity.
        size: whose it was, and how large.
        ran_s: from the start of its first pod to its end.
    """

    uid: str
    size: JobScale
    ran_s: float

    @classmethod
    def of(cls, record: RunRecord) -> EndedRun | None:
        """Return what is known of a run; None for one that goes on or does not say."""
        job, ended = record.job, ended_at(record.job)
        starts = [(pod.get("status") or {}).get("startTime") or "" for pod in record.pods]
        began = min(filter(None, starts), default="") or (job.get("status") or {}).get("startTime") or ""
        if not ended or not began:
            return None
        ran_s = (parse_time(ended) - parse_time(began)).total_seconds()
        return cls(job["metadata"].get("uid", ""), JobScale.of(job), ran_s) if ran_s > 0 else None


def expected_s(ended: Sequence[EndedRun], size: JobScale, ran_s: float, share: float) -> float | None:
    """Return after how many seconds from its start so large a share of jobs like one have ended.

    Only jobs count that ran longer than this one has run already.

    Args:
        ended: jobs that are over.
        size: of the job that runs.
        ran_s: how long it has run.
        share: 0.5 for the median.

    Returns:
        None where fewer than three jobs are known that ran so long.
    """
    known = sorted(one.ran_s for one in ended if one.size == size and one.ran_s > ran_s)
    return known[ceil(share * len(known)) - 1] if len(known) >= ENDED_MIN else None
