"""The kinds of jobs that Gangline runs. A new kind is one entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from gangline.api.core import ObjectMeta
from gangline.api.mpijob_reading import ReadJob, read_observed, renew
from gangline.api.resources import (
    CONFIG_MAPS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOB_SETS,
    JOBS,
    MPIJOBS,
    PODS,
    RUNTIMES,
    SECRETS,
    SERVICES,
    TRAINJOBS,
    Resource,
)
from gangline.api.trainer.reading import ReadTrainJob, read_observed_train_job, renew_train_job
from gangline.api.training.kinds import PYTORCHJOB, TRAINJOB
from gangline.api.training.reading import ReadTrainingJob, read_observed_training, renew_training
from gangline.jobs import mpijob
from gangline.jobs.names import JOB_NAME_LABEL, OPERATOR_NAME, OPERATOR_NAME_LABEL
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Plan
from gangline.jobs.settings import Settings
from gangline.jobs.training import reconcile as training
from gangline.jobs.training import trainjob
from gangline.jobs.training.rules import TRAINING_RULES, TrainingRules

_Read = TypeVar("_Read")
_Read_contra = TypeVar("_Read_contra", contravariant=True)


class Reconcile(Protocol[_Read_contra]):
    """Works out the plan for one job of a kind; pure."""

    def __call__(
        self,
        read: _Read_contra,
        observed: ObservedChildren,
        now: datetime,
        *,
        raw_status: Any,
        settings: Settings,
    ) -> Plan:
        """Return the plan."""
        ...


@dataclass(frozen=True, slots=True)
class JobKind(Generic[_Read]):
    """How one kind is read, found and run.

    Attributes:
        resource: where its objects live.
        owner_label: label and value that all its children carry.
        name_label: label that holds the job's name on each child.
        read: from metadata, spec and status to a typed job with its errors.
        renew: the same for a spec that was read before; spares reading it again.
        reconcile: from a typed job and what is observed to a plan.
        children: kinds of the objects that a job makes, apart from its PodGroup; a cluster may lack JobSets.
        component: source of its events.
        framework: label of its jobs in the training operator's metrics; empty for others.
        is_required: whether an operator waits for a cluster to serve the kind.
        runtimes: kinds that its objects name, and that say how their pods look.
    """

    resource: Resource
    owner_label: tuple[str, str]
    name_label: str
    read: Callable[[ObjectMeta, Any, Any], _Read]
    renew: Callable[[_Read, ObjectMeta, Any], _Read]
    reconcile: Reconcile[_Read]
    children: tuple[Resource, ...]
    component: str
    framework: str = ""
    is_required: bool = True
    runtimes: tuple[Resource, ...] = ()


def _training_job(rules: TrainingRules) -> JobKind[ReadTrainingJob]:
    kind = rules.kind
    return JobKind(
        resource=kind.resource,
        owner_label=(OPERATOR_NAME_LABEL, kind.controller),
        name_label=JOB_NAME_LABEL,
        read=partial(read_observed_training, kind),
        renew=renew_training,
        reconcile=partial(training.reconcile, rules),
        children=(SERVICES, PODS, *((HORIZONTAL_POD_AUTOSCALERS,) if kind is PYTORCHJOB else ())),
        component=kind.controller,
        framework=kind.container,
        is_required=False,
    )


MPI_JOB: JobKind[ReadJob] = JobKind(
    resource=MPIJOBS,
    owner_label=(OPERATOR_NAME_LABEL, OPERATOR_NAME),
    name_label=JOB_NAME_LABEL,
    read=read_observed,
    renew=renew,
    reconcile=mpijob.reconcile,
    children=(SERVICES, CONFIG_MAPS, SECRETS, JOBS, PODS),
    component="mpi-job-controller",
)
TRAIN_JOB: JobKind[ReadTrainJob] = JobKind(
    resource=TRAINJOBS,
    owner_label=(OPERATOR_NAME_LABEL, TRAINJOB.controller),
    name_label=JOB_NAME_LABEL,
    read=read_observed_train_job,
    renew=renew_train_job,
    reconcile=trainjob.reconcile,
    children=(SERVICES, CONFIG_MAPS, SECRETS, PODS, JOB_SETS),
    component=TRAINJOB.controller,
    framework="trainjob",
    is_required=False,
    runtimes=RUNTIMES,
)
JOB_KINDS: tuple[JobKind[Any], ...] = (MPI_JOB, *map(_training_job, TRAINING_RULES), TRAIN_JOB)
