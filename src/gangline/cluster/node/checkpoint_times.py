"""Tells each pod when its training last saved its state: who chooses whom to end reads that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from gangline.api.core import Pod
from gangline.api.resources import PODS
from gangline.cluster.paths import ClusterPaths
from gangline.kube.errors import ApiError
from gangline.kube.verbs import ObjectClient
from gangline.train.checkpoint_log import CheckpointLogs
from gangline.workloads.suspension import CHECKPOINT_ANNOTATION

LOOK_S = 10.0
"""How often logs are looked at; a pod is written to as often at most."""


async def tell_checkpoint_times(
    client: ObjectClient, paths: ClusterPaths, running: Callable[[], list[Pod]]
) -> None:
    """Write the annotation of each pod whose log tells of a new checkpoint, until cancelled.

    Args:
        client: of the cluster.
        paths: of its logs.
        running: the pods of this node.
    """
    logs = CheckpointLogs()
    while True:
        await asyncio.sleep(LOOK_S)
        pods = {pod.metadata.uid: pod.metadata for pod in running()}
        folders = {uid: paths.pod_logs(meta.namespace, meta.name, uid) for uid, meta in pods.items()}
        for uid, time in (await asyncio.to_thread(logs.news, folders)).items():
            patch = {"metadata": {"uid": uid, "annotations": {CHECKPOINT_ANNOTATION: time}}}
            with suppress(ApiError):  # it is gone, or told with its next checkpoint
                await client.patch(PODS, pods[uid].name, patch, pods[uid].namespace)
