"""What each kind of the family does in its own way; another kind is one more entry.

A kind's names and defaults are in ``api/training/kinds.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gangline.api.trainer.job import LAUNCHER, NODE
from gangline.api.training.job import WORKER, TFJobSpec, TrainingJob, TrainingReplicaStatus
from gangline.api.training.kinds import PYTORCHJOB, TFJOB, TRAINJOB, TrainingKind
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Action
from gangline.jobs.training.mpi_node import ensure_mpi_objects, mount_mpi, mpi_environment
from gangline.jobs.training.progress import ReplicaProgress
from gangline.jobs.training.pytorch import (
    is_pytorch_master,
    pytorch_environment,
    pytorch_failure,
    pytorch_progress,
)
from gangline.jobs.training.replicas import ObservedReplicas, replica_name
from gangline.jobs.training.status import TrainingStatusDraft
from gangline.jobs.training.status_access import ensure_authority, mount_status_access
from gangline.jobs.training.tensorflow import (
    is_tensorflow_master,
    tensorflow_environment,
    tensorflow_failure,
    tensorflow_progress,
)
from gangline.jobs.training.torch_node import (
    TrainJobDraft,
    node_name,
    place_node,
    torch_environment,
    trainjob_failure,
    trainjob_progress,
)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingRules:
    """The rules of one kind.

    Attributes:
        kind: names and defaults.
        environment: variables of one replica, of its type and index, with the cluster's domain.
        tells_all: whether every container gets them, or the first one that trains alone.
        is_master: whether a replica carries the label of the master.
        progress: whether the job runs or has succeeded.
        failure: why it fails, when so many pods of a type did.
        forgives: whether a failed pod of a type that is not made again leaves the job going.
        name: of a replica's pod, and of its Service.
        place: a pod with what only this kind's have.
        has_one_service: whether all replicas share one, of the job's name, instead of one each.
        draft: the status while it is worked out.
        objects: what makes those objects right that are neither pods nor Services.
    """

    kind: TrainingKind
    environment: Callable[[TrainingJob, str, int, str], dict[str, str]]
    tells_all: Callable[[TrainingJob], bool]
    is_master: Callable[[TrainingJob, str, int], bool]
    progress: Callable[[TrainingJob, ObservedReplicas, dict[str, TrainingReplicaStatus]], ReplicaProgress]
    failure: Callable[[TrainingJob, str, int], str]
    forgives: Callable[[TrainingJob, str], bool] = lambda job, type_: False
    name: Callable[[TrainingJob, str, int], str] = lambda job, type_, index: replica_name(
        job.metadata.name, type_, index
    )
    place: Callable[[Object, TrainingJob, str, int], Object] = lambda pod, *_: pod
    has_one_service: bool = False
    draft: type[TrainingStatusDraft] = TrainingStatusDraft
    objects: Callable[[TrainingJob, ObservedChildren], list[Action]] = lambda *_: []


def _is_dynamic_worker(job: TrainingJob, type_: str) -> bool:
    return type_ == WORKER and isinstance(job.spec, TFJobSpec) and job.spec.enable_dynamic_worker


PYTORCH_RULES: Final = TrainingRules(
    kind=PYTORCHJOB,
    environment=pytorch_environment,
    tells_all=lambda job: True,
    is_master=is_pytorch_master,
    progress=pytorch_progress,
    failure=pytorch_failure,
)
TENSORFLOW_RULES: Final = TrainingRules(
    kind=TFJOB,
    environment=tensorflow_environment,
    tells_all=lambda job: job.is_v1beta2,
    is_master=is_tensorflow_master,
    progress=tensorflow_progress,
    failure=tensorflow_failure,
    forgives=_is_dynamic_worker,
)
TRAINJOB_RULES: Final = TrainingRules(
    kind=TRAINJOB,
    environment=lambda job, type_, index, domain: (
        torch_environment(job, type_, index, domain) | mpi_environment(job, type_)
    ),
    tells_all=lambda job: False,
    is_master=lambda job, type_, index: type_ == (LAUNCHER if job.mpi else NODE) and index == 0,
    progress=trainjob_progress,
    failure=trainjob_failure,
    name=node_name,
    place=lambda pod, job, type_, index: mount_status_access(
        mount_mpi(place_node(pod, job, type_, index), job, type_), job
    ),
    has_one_service=True,
    draft=TrainJobDraft,
    objects=lambda job, observed: [*ensure_mpi_objects(job, observed), *ensure_authority(job, observed)],
)
TRAINING_RULES: Final = (PYTORCH_RULES, TENSORFLOW_RULES)
