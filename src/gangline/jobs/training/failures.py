"""What failed pods mean for a training job: made again, or its end; and the limits of the whole job.

Source: training-operator 1.9.4, tf-operator 0.5.3. Done otherwise: pods that are made again count toward
``backoffLimit``, which bounds nothing there; a pod that its node refused, or that was lost with it, is placed
anew without counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from gangline.api.core import Pod, find_condition
from gangline.api.mpijob import DEFAULT_BACKOFF_LIMIT
from gangline.api.training.job import TrainingJob
from gangline.clock import parse_time
from gangline.jobs.training.replicas import NO_EXIT_CODE, ObservedReplicas, exit_code_of
from gangline.jobs.training.rules import TrainingRules

_RETRYABLE_FROM: Final = 128
_FREE_ROUNDS: Final = 2
RESTART_PAUSE_MAX_S: Final = 60.0
_BY_KUBELET: Final = "TerminationByKubelet"
_RETRYABLE_IN_V1BETA2: Final = frozenset({130, 137, 138, 143})


class Fate(Enum):
    """What follows from a failed pod."""

    REPLACED = "its node refused it or is gone: it is made again, and does not count"
    RESTARTED = "it is made again, and counts"
    PERMANENT = "its exit code says that it would fail again: the job fails"
    FATAL = "its policy makes nothing again: the job fails"
    FORGIVEN = "the job goes on without it"


class FailedReplica(NamedTuple):
    """A failed pod, its type and what follows."""

    type: str
    pod: Pod
    fate: Fate


def is_retryable(code: int, *, is_v1beta2: bool) -> bool:
    """Whether ``restartPolicy: ExitCode`` makes a pod again after this code."""
    return code in _RETRYABLE_IN_V1BETA2 if is_v1beta2 else code >= _RETRYABLE_FROM


def failed_replicas(rules: TrainingRules, replicas: ObservedReplicas) -> Iterator[FailedReplica]:
    """Yield every wanted pod that failed and is not being deleted, with what follows."""
    for type_ in replicas.job.roles:
        for _, pod in replicas.wanted(type_):
            if pod.status.phase == "Failed" and not pod.metadata.deletion_timestamp:
                yield FailedReplica(type_, pod, _fate(rules, replicas.job, type_, pod))


def _fate(rules: TrainingRules, job: TrainingJob, type_: str, pod: Pod) -> Fate:
    policy = job.roles[type_].restart_policy
    if pod.is_refused:
        return Fate.REPLACED
    if job.restarts_gang:
        return Fate.RESTARTED
    if is_taken_away(pod) and (policy != "Never" or job.elastic_policy):
        return Fate.REPLACED
    if policy == "ExitCode":
        code = exit_code_of(rules.kind, pod)
        code = NO_EXIT_CODE if code is None else code
        return Fate.RESTARTED if is_retryable(code, is_v1beta2=job.is_v1beta2) else Fate.PERMANENT
    if policy in ("OnFailure", "Always") and not job.is_v1beta2:
        return Fate.RESTARTED
    return Fate.FORGIVEN if rules.forgives(job, type_) else Fate.FATAL


def is_taken_away(pod: Pod) -> bool:
    """Whether a pod ended with its node or gave way; not one that its node ends for what it uses itself."""
    target = find_condition(pod.status.conditions, "DisruptionTarget")
    return target is not None and target.status == "True" and target.reason != _BY_KUBELET


def is_past_backoff_limit(replicas: ObservedReplicas, restarts: int) -> bool:
    """Whether the containers' restarts in place and the pods that were made again are too many.

    Restarts in place reach the limit at its number, as upstream; a limit of 0 forgives none. So many pods are
    made again as the limit says.
    """
    job = replicas.job
    limit = job.run_policy.backoff_limit
    if limit is None:
        if not job.restarts_gang:
            return False
        limit = DEFAULT_BACKOFF_LIMIT
    in_place = sum(_restarts_in_place(pod) for type_, pod in replicas.all_pods() if _counts(job, type_))
    return in_place >= max(limit, 1) or in_place + restarts > limit


def _counts(job: TrainingJob, type_: str) -> bool:
    return type_ in job.roles and job.roles[type_].restart_policy != "Never"


def _restarts_in_place(pod: Pod) -> int:
    if pod.status.phase != "Running":
        return 0
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return sum(status.restart_count for status in statuses)


def restart_pause_s(job: TrainingJob, restarts: int) -> float:
    """Return how long pods wait to be made again: nothing at first, then 1 s, 2 s, ... at most a minute.

    Each pod of the job has two restarts free, or all at once where the gang restarts: a program that cannot
    start would otherwise be made again as fast as the API server takes it.
    """
    rounds = restarts // (1 if job.restarts_gang else max(job.total, 1))
    return 0.0 if rounds < _FREE_ROUNDS else min(2.0 ** (rounds - _FREE_ROUNDS), RESTART_PAUSE_MAX_S)


def seconds_left(start: str | None, limit_s: int | None, now: datetime) -> float | None:
    """Return the seconds until a limit that began at ``start``; None without either, 0 or less when over."""
    if not start or limit_s is None:
        return None
    return limit_s - (now - parse_time(start)).total_seconds()
