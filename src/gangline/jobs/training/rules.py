"""What each kind of the family does in its own way; another kind is one more entry.

A kind's names and defaults are in ``api/training/kinds.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gangline.api.training.job import WORKER, TFJobSpec, TrainingJob, TrainingReplicaStatus
from gangline.api.training.kinds import PYTORCHJOB, TFJOB, TrainingKind
from gangline.jobs.training.progress import ReplicaProgress
from gangline.jobs.training.pytorch import (
    is_pytorch_master,
    pytorch_environment,
    pytorch_failure,
    pytorch_progress,
)
from gangline.jobs.training.replicas import ObservedReplicas
from gangline.jobs.training.tensorflow import (
    is_tensorflow_master,
    tensorflow_environment,
    tensorflow_failure,
    tensorflow_progress,
)


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
    """

    kind: TrainingKind
    environment: Callable[[TrainingJob, str, int, str], dict[str, str]]
    tells_all: Callable[[TrainingJob], bool]
    is_master: Callable[[TrainingJob, str, int], bool]
    progress: Callable[[TrainingJob, ObservedReplicas, dict[str, TrainingReplicaStatus]], ReplicaProgress]
    failure: Callable[[TrainingJob, str, int], str]
    forgives: Callable[[TrainingJob, str], bool]


def _is_dynamic_worker(job: TrainingJob, type_: str) -> bool:
    return type_ == WORKER and isinstance(job.spec, TFJobSpec) and job.spec.enable_dynamic_worker


PYTORCH_RULES: Final = TrainingRules(
    kind=PYTORCHJOB,
    environment=pytorch_environment,
    tells_all=lambda job: True,
    is_master=is_pytorch_master,
    progress=pytorch_progress,
    failure=pytorch_failure,
    forgives=lambda job, type_: False,
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
TRAINING_RULES: Final = (PYTORCH_RULES, TENSORFLOW_RULES)
