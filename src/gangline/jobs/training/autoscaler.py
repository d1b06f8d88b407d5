"""The HorizontalPodAutoscaler of `elasticPolicy.metrics`, which changes how many workers a PyTorchJob wants.

Source: training-operator 1.9.4. Done otherwise: it goes at the job's end too, and with the metrics.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from gangline.api.resources import HORIZONTAL_POD_AUTOSCALERS
from gangline.api.training.autoscaler import Autoscaler
from gangline.api.training.job import TrainingJob
from gangline.api.training.kinds import TrainingKind
from gangline.jobs.names import child_metadata
from gangline.jobs.plan import Action, Create, Delete, Patch
from gangline.jobs.training.replicas import job_labels
from gangline.units import parse_quantity

Object = dict[str, Any]

_QUANTITIES: Final = ("value", "averageValue")


def build_autoscaler(kind: TrainingKind, job: TrainingJob) -> Object | None:
    """Return the autoscaler that a job asks for, of its own name; None where it asks for none."""
    elastic, name = job.elastic_policy, job.metadata.name
    if elastic is None or not elastic.metrics:
        return None
    resource = HORIZONTAL_POD_AUTOSCALERS
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": child_metadata(job.metadata, name, job_labels(kind, name), kind.resource),
        "spec": {
            "scaleTargetRef": {"apiVersion": kind.resource.api_version, "kind": kind.name, "name": name},
            "minReplicas": elastic.min_replicas,
            "maxReplicas": elastic.max_replicas,
            "metrics": elastic.metrics,
        },
    }


def ensure_autoscaler(wanted: Object | None, found: Autoscaler | None) -> list[Action]:
    """Return what makes the autoscaler right; one of the job's that is not wanted goes."""
    resource = HORIZONTAL_POD_AUTOSCALERS
    if wanted is None:
        if found is None or found.metadata.deletion_timestamp:
            return []
        meta = found.metadata
        return [Delete(resource, meta.namespace, meta.name, meta.uid)]
    if found is None:
        return [Create(resource, wanted)]
    spec = wanted["spec"]
    if all(_amounts(found.spec.get(key)) == _amounts(value) for key, value in spec.items()):
        return []
    meta = found.metadata
    return [Patch(resource, meta.namespace, meta.name, {"spec": spec})]


def _amounts(value: Any, key: str = "") -> Any:
    """Return a value with its quantities as numbers: a server may write `0.5` as `500m`."""
    if isinstance(value, dict):
        return {name: _amounts(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_amounts(inner) for inner in value]
    return _amount(value) if key in _QUANTITIES else value


def _amount(value: Any) -> Decimal | Any:
    try:
        return parse_quantity(value)
    except (ValueError, TypeError):
        return value
