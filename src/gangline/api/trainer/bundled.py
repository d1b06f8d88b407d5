"""The runtimes that come with Gangline, under the names that Kubeflow Trainer's have."""

from __future__ import annotations

from typing import Any, Final

from gangline.api.resources import CLUSTER_TRAINING_RUNTIMES
from gangline.api.trainer.job import FRAMEWORK_LABEL, NODE, STEP_LABEL, TRAINER_STEP

TORCH_DISTRIBUTED: Final = "torch-distributed"
TORCH_IMAGE: Final = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"


def bundled_runtimes() -> list[dict[str, Any]]:
    """Return every runtime as a fresh object in wire form, ready to be applied."""
    step = {"metadata": {"labels": {STEP_LABEL: TRAINER_STEP}}}
    pods = {"spec": {"containers": [{"name": NODE, "image": TORCH_IMAGE}]}}
    job = {"name": NODE, "template": {**step, "spec": {"template": pods}}}
    return [
        {
            "apiVersion": CLUSTER_TRAINING_RUNTIMES.api_version,
            "kind": CLUSTER_TRAINING_RUNTIMES.kind,
            "metadata": {"name": TORCH_DISTRIBUTED, "labels": {FRAMEWORK_LABEL: "torch"}},
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {}},
                "template": {"spec": {"replicatedJobs": [job]}},
            },
        }
    ]
