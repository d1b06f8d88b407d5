"""How a job ended, and the most exact cause that its pods and its launcher's output tell. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from gangline.workloads.job_state import condition, exit_code_of, primary_pods
from gangline.workloads.kinds import is_worker, kind_of
from gangline.workloads.outcome import Cause, CauseKind, LaunchFailure, cause_of_code, is_signal
from gangline.workloads.pending import start_error
from gangline.workloads.rank_hosts import hosts_of, pod_of_rank

Obj = dict[str, Any]

EndStatus = Literal["SUCCEEDED", "FAILED", "DELETED"]


class JobOutcome(msgspec.Struct):
    """How a job ended.

    Attributes:
        job: its last state.
        pods: its pods as last seen, those deleted meanwhile included.
        status: of the job itself; one whose launcher lost a host may say that it succeeded.
        exit_code: of the last primary pod; ``None`` when there is none.
        failure: what the launcher's output tells of a failure.
        over_at: when the job was over, on the monotonic clock.
    """

    job: Obj
    pods: list[Obj]
    status: EndStatus
    exit_code: int | None = None
    failure: LaunchFailure | None = None
    over_at: float = 0.0

    @property
    def primary_pod(self) -> str:
        """Name of the last pod whose log is the job's; empty when there is none."""
        primaries = primary_pods(self.job, self.pods)
        return str(primaries[-1]["metadata"]["name"]) if primaries else ""


def cause_of(outcome: JobOutcome) -> Cause | None:
    """Return why a job failed, the most exact that is known; ``None`` for one that succeeded.

    A launcher that lost a host and yet ended with 0, as Open MPI 5 does, counts as failed.
    """
    told = launch_cause(outcome)
    if outcome.status == "SUCCEEDED":
        return told if told is not None and told.kind is CauseKind.HOST_LOST else None
    if pod := _out_of_memory(outcome.pods):
        return Cause(CauseKind.OUT_OF_MEMORY, pod=pod)
    if told is not None and told.rank is not None:
        return told
    if never := start_error(outcome.pods):
        return Cause(CauseKind.NOT_STARTED, pod=never.pod, detail=str(never))
    if worker := _broken_worker(outcome.pods):
        return worker
    if told is not None and (outcome.exit_code or (told.host and told.is_end_of_rank)):
        return told
    ended = condition(outcome.job, "Failed") or {}
    words = str(ended.get("message") or ended.get("reason") or "it says no reason")
    return Cause(CauseKind.JOB_FAILED, detail=words)


def launch_cause(outcome: JobOutcome) -> Cause | None:
    """Return what the launcher's output tells, with the pod: by the host named, else by the rank's place."""
    if outcome.failure is None:
        return None
    cause = outcome.failure.cause
    if not kind_of(outcome.job).primary:
        return cause._replace(pod=outcome.primary_pod)
    named = cause.host.partition(".")[0]
    if named and any(named == name for name, _ in hosts_of(outcome.job)):
        return cause._replace(pod=named)
    return cause if cause.rank is None else cause._replace(pod=pod_of_rank(cause.rank, outcome.job))


def _out_of_memory(pods: Sequence[Obj]) -> str:
    """Return the first pod of which a container was ended for want of memory, empty when there is none."""
    for pod in pods:
        for known in (pod.get("status") or {}).get("containerStatuses") or []:
            ended = (known.get("state") or {}).get("terminated") or {}
            if ended.get("reason") == "OOMKilled":
                return str(pod["metadata"]["name"])
    return ""


def _broken_worker(pods: Sequence[Obj]) -> Cause | None:
    """Return how a worker pod ended badly by itself, ``None`` when none did."""
    for pod in pods:
        code = exit_code_of(pod)
        if not is_worker(pod) or not code or pod["metadata"].get("deletionTimestamp"):
            continue
        ended = (pod["status"]["containerStatuses"][0].get("state") or {}).get("terminated") or {}
        reason = ended.get("reason") if ended.get("reason") != "Error" and not is_signal(code) else ""
        name = pod["metadata"]["name"]
        return cause_of_code(code)._replace(kind=CauseKind.POD_ENDED, pod=name, detail=reason or "")
    return None
