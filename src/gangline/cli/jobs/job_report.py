"""A job as JSON for programs: the keys that arena's users know."""

from __future__ import annotations

from typing import Any

from gangline.cli.jobs.job_view import JobView


def job_report(view: JobView, gpu_kind: str = "") -> dict[str, Any]:
    """Return a job and its instances as plain values; durations and ages as ``Ns``.

    ``gpuKind`` is ``real``, ``simulated``, or null where there is none or nobody knows.
    """
    return {
        "uuid": view.uid,
        "name": view.name,
        "namespace": view.namespace,
        "kind": view.kind,
        "duration": f"{view.duration_s:.0f}s",
        "status": view.status,
        "reason": view.reason,
        "trainer": view.trainer.lower(),
        "tensorboard": "",
        "chiefName": view.primary,
        "priority": view.priority or "N/A",
        "requestGPUs": view.gpus,
        "allocatedGPUs": view.gpus_allocated or 0,
        "gpuKind": (gpu_kind if view.gpus else "") or None,
        "creationTimestamp": view.created,
        "endTimestamp": view.ended or None,
        "instances": [
            {
                "name": instance.name,
                "status": instance.status,
                "age": f"{instance.age_s:.0f}s",
                "chief": instance.is_primary,
                "requestGPUs": instance.gpus,
                "ip": instance.ip,
                "node": instance.node,
                "nodeIP": instance.node_ip,
                "restarts": instance.restarts,
                "creationTimestamp": instance.created,
            }
            for instance in view.instances
        ],
    }
