"""TrainJob and (Cluster)TrainingRuntime of ``trainer.kubeflow.org/v1alpha1`` as typed values.

A TrainJob names a runtime, which says how pods look, and changes little of it. Source: Kubeflow Trainer
2.3.0. The descriptions appear in the definitions and so in ``kubectl explain``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from gangline.api.core import Condition, ObjectMeta, Wire
from gangline.api.mpijob import Int32, Int64
from gangline.api.resources import CLUSTER_TRAINING_RUNTIMES

MANAGED_BY_US: Final = "trainer.kubeflow.org/trainjob-controller"
MANAGERS: Final = (MANAGED_BY_US, "kueue.x-k8s.io/multikueue")
FRAMEWORK_LABEL: Final = "trainer.kubeflow.org/framework"
STEP_LABEL: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER_STEP: Final = "trainer"
NODE: Final = "node"
"""Name of the replicated job that trains, and of its container."""
POLICIES: Final = ("torch", "mpi", "jax", "xgboost", "flux")
POLICIES_SERVED: Final = ("torch", "mpi")
LAUNCHER: Final = "launcher"
"""Name of the replicated job that runs mpirun."""
DATASET_STEP: Final = "dataset-initializer"
MODEL_STEP: Final = "model-initializer"
"""Values of the step's label, and names of the container that fetches."""

Obj = dict[str, Any]


def _doc(text: str, **schema: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra_json_schema=schema or None)


class RuntimeRef(Wire, frozen=True, kw_only=True):
    """Which runtime."""

    name: Annotated[str, _doc("Its name.")] = ""
    api_group: Annotated[str, _doc("Its group; default trainer.kubeflow.org.")] = (
        CLUSTER_TRAINING_RUNTIMES.group
    )
    kind: Annotated[str, _doc("ClusterTrainingRuntime, the default, or TrainingRuntime.")] = (
        CLUSTER_TRAINING_RUNTIMES.kind
    )


class Trainer(Wire, frozen=True, kw_only=True):
    """What the container that trains has otherwise than the runtime says."""

    image: Annotated[str | None, _doc("Its image.")] = None
    command: Annotated[list[str] | None, _doc("Its command.")] = None
    args: Annotated[list[str] | None, _doc("Its arguments.")] = None
    env: Annotated[list[Obj], _doc("Variables, which win over the runtime's.")] = []
    num_nodes: Annotated[Int32 | None, _doc("How many pods train.", minimum=1)] = None
    resources_per_node: Annotated[Obj | None, _doc("Requests and limits of each.")] = None
    num_proc_per_node: Annotated[Int32 | None, _doc("Processes of each pod.", minimum=1)] = None


class SecretRef(Wire, frozen=True, kw_only=True):
    """A Secret of the job's namespace."""

    name: str = ""


class InitializerStep(Wire, frozen=True, kw_only=True):
    """What one step fetches before the training begins."""

    storage_uri: Annotated[str | None, _doc("From where: hf://, s3://; the variable STORAGE_URI.")] = None
    env: Annotated[list[Obj], _doc("Variables, which win over the runtime's.")] = []
    secret_ref: Annotated[SecretRef | None, _doc("A Secret whose keys are variables too.")] = None


class Initializer(Wire, frozen=True, kw_only=True):
    """What the runtime's initializer jobs fetch."""

    dataset: Annotated[InitializerStep | None, _doc("By the job of the step dataset-initializer.")] = None
    model: Annotated[InitializerStep | None, _doc("By the job of the step model-initializer.")] = None


class RuntimePatch(Wire, frozen=True, kw_only=True):
    """What somebody changes in the runtime for this job."""

    manager: Annotated[str, _doc("Who changes it.")]
    time: str | None = None
    training_runtime_spec: Annotated[Obj, _doc("The changed part of the runtime's spec.")] = {}


class TrainJobSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a TrainJob."""

    runtime_ref: Annotated[RuntimeRef, _doc("The runtime.")] = RuntimeRef()
    initializer: Annotated[Initializer, _doc("What is fetched before the training begins.")] = Initializer()
    trainer: Annotated[Trainer, _doc("What trains.")] = Trainer()
    runtime_patches: Annotated[
        list[RuntimePatch],
        _doc(
            "Changes of the runtime, one of each manager, the last wins; written while the job is suspended.",
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["manager"]},
        ),
    ] = []
    suspend: Annotated[bool, _doc("Whether the job holds no pods.")] = False
    active_deadline_seconds: Annotated[
        Int64 | None, _doc("The job fails when it has run for so many seconds.", minimum=1)
    ] = None
    managed_by: Annotated[str | None, _doc("Who runs the job.")] = None


class TrainerMetric(Wire, frozen=True, kw_only=True):
    """A figure that a training tells."""

    name: Annotated[str, _doc("Such as loss.", minLength=1)]
    value: Annotated[str, _doc("As text.", minLength=1)]


class TrainerStatus(Wire, frozen=True, kw_only=True):
    """How far a training is, as its pods tell it."""

    progress_percentage: Annotated[Int32 | None, _doc("Of the whole.", minimum=0, maximum=100)] = None
    estimated_remaining_seconds: Annotated[Int32 | None, _doc("Until its end.", minimum=0)] = None
    metrics: Annotated[list[TrainerMetric], _doc("The last figures.")] = []
    last_updated_time: Annotated[str | None, _doc("When that was told.", format="date-time")] = None


class TrainJobStatus(Wire, frozen=True, kw_only=True):
    """``status`` of a TrainJob; all from the start time on are Gangline's own."""

    conditions: Annotated[list[Condition], _doc("Suspended, Complete, Failed.")] = []
    jobs_status: Annotated[list[Obj], _doc("Pods of each replicated job, as one Job counts.")] = []
    trainer_status: Annotated[TrainerStatus | None, _doc("How far the training is, by its own word.")] = None
    start_time: Annotated[str | None, _doc("When the job started or was resumed.")] = None
    completion_time: Annotated[str | None, _doc("When the job ended.")] = None
    restarts: Annotated[Int32, _doc("How often pods were made again.")] = 0
    last_restart_time: Annotated[str | None, _doc("When that was last.")] = None
    restarting_pods: Annotated[list[str], _doc("Uids of pods that are made again and not gone yet.")] = []
    job_set_for: Annotated[
        list[str], _doc("Fields of the runtime that only JobSet does: a JobSet of the job's name runs it.")
    ] = []


class Runtime(Wire, frozen=True, kw_only=True):
    """A ClusterTrainingRuntime or TrainingRuntime as a cache keeps it."""

    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Obj = {}
