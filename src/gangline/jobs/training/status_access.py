"""What the training pods of a TrainJob get to tell how far they are: where, and by which token.

Names are Kubeflow Trainer's (2.3.0), so that its SDK and transformers find them; whoever does not read them
tells nothing. A token is of one job alone, and no token of the API server.
"""

from __future__ import annotations

from typing import Any, Final

from gangline.api.resources import CONFIG_MAPS, TRAINJOBS
from gangline.api.trainer.job import STEP_LABEL, TRAINER_STEP
from gangline.api.training.job import TrainingJob
from gangline.api.training.kinds import TRAINJOB
from gangline.jobs.names import child_metadata
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Action, Create, Patch
from gangline.jobs.training.replicas import job_labels

Object = dict[str, Any]

_VOLUME: Final = "kubeflow-trainer-token"
_MOUNT: Final = "/var/run/secrets/kubeflow/trainer"
_AUTHORITY: Final = "ca.crt"
_TOKEN: Final = "token"
_LIFETIME_S: Final = 3600


def status_path(namespace: str, name: str) -> str:
    """Return the path at which the status of a job is taken."""
    return f"/apis/{TRAINJOBS.api_version}/namespaces/{namespace}/{TRAINJOBS.plural}/{name}/status"


def token_audience(namespace: str, name: str) -> str:
    """Return whom the token of a job's pods is for."""
    return f"{TRAINJOBS.group}{status_path(namespace, name)}"


def _authority_name(job: TrainingJob) -> str:
    return f"{job.metadata.name}-tls-config"


def ensure_authority(job: TrainingJob, observed: ObservedChildren) -> list[Action]:
    """Return what makes the ConfigMap right by which pods know the server."""
    if job.status_endpoint is None:
        return []
    name, data = _authority_name(job), {_AUTHORITY: job.status_endpoint.authority}
    found = observed.config_maps.get(name)
    if found is None:
        metadata = child_metadata(job.metadata, name, job_labels(TRAINJOB, job.metadata.name), TRAINJOBS)
        wanted = {"apiVersion": "v1", "kind": CONFIG_MAPS.kind, "metadata": metadata, "data": data}
        return [Create(CONFIG_MAPS, wanted)]
    same = found.data == data
    return [] if same else [Patch(CONFIG_MAPS, job.metadata.namespace, name, {"data": data})]


def mount_status_access(pod: Object, job: TrainingJob) -> Object:
    """Return a pod whose containers can tell the status; one of another step than the training as it is."""
    endpoint, meta = job.status_endpoint, job.metadata
    if endpoint is None or pod["metadata"]["labels"].get(STEP_LABEL) != TRAINER_STEP:
        return pod
    told = {
        "KUBEFLOW_TRAINER_SERVER_URL": endpoint.url + status_path(meta.namespace, meta.name),
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{_MOUNT}/{_AUTHORITY}",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{_MOUNT}/{_TOKEN}",
    }
    env = [{"name": name, "value": value} for name, value in told.items()]
    mount = {"name": _VOLUME, "mountPath": _MOUNT, "readOnly": True}
    token = {
        "audience": token_audience(meta.namespace, meta.name),
        "expirationSeconds": _LIFETIME_S,
        "path": _TOKEN,
    }
    authority = {"name": _authority_name(job), "items": [{"key": _AUTHORITY, "path": _AUTHORITY}]}
    sources = [{"serviceAccountToken": token}, {"configMap": authority}]
    spec = pod["spec"]
    containers = [
        {
            **one,
            "env": [*(one.get("env") or []), *env],
            "volumeMounts": [*(one.get("volumeMounts") or []), mount],
        }
        for one in spec["containers"]
    ]
    volumes = [*(spec.get("volumes") or []), {"name": _VOLUME, "projected": {"sources": sources}}]
    return {**pod, "spec": {**spec, "containers": containers, "volumes": volumes}}
