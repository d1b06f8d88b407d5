"""Waits until the pods of Deployments are ready, within a bound, and says what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gangline.api.resources import DEPLOYMENTS, PODS
from gangline.errors import ClusterError
from gangline.workloads.pending import IMAGE_REFUSED, pending_reason_of

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

POLL_S = 0.25
IMAGE_NOT_THERE = (*IMAGE_REFUSED, "ImagePullBackOff")
"""It would take somebody to push the image: waiting longer does not help."""


def is_rolled_out(deployment: Obj) -> bool:
    """Return whether all pods of a Deployment are of its present template and ready.

    Source: ``kubectl rollout status``.
    """
    status, wanted = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    is_seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 1)
    return is_seen and counts == [wanted] * 3


def why_not(deployment: Obj, pods: Sequence[Obj]) -> str:
    """Return in words how far a Deployment is and what holds its pods up."""
    status, wanted = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    ready = min(status.get("availableReplicas", 0), status.get("updatedReplicas", 0))
    told = f"{ready} of {wanted} pods ready" + ("; earlier ones end" if ready == wanted else "")
    reasons = [str(found) for pod in pods if (found := pending_reason_of(pod))]
    if not pods:
        failed = [one for one in status.get("conditions") or [] if one.get("type") == "ReplicaFailure"]
        reasons = [str(one.get("message")) for one in failed]
    return f"{told}; {reasons[0]}" if reasons else told


async def wait_until_ready(
    client: ObjectClient,
    deployments: Sequence[Obj],
    say: Callable[[str], None],
    *,
    timeout_s: float,
) -> None:
    """Wait until the Deployments are rolled out; a line is said whenever something has changed.

    Raises:
        ClusterError: an image cannot be had, or the time is over.
    """
    said: dict[str, str] = {}
    try:
        async with asyncio.timeout(timeout_s):
            for deployment in deployments:
                await _until_ready(client, deployment, said, say)
    except TimeoutError:
        name, told = next(iter(reversed(said.items())), ("", "nothing was heard"))
        raise ClusterError(
            f"{name} is not ready after {timeout_s:g} s: {told}",
            hint="what is installed stays and may become ready yet; the same command waits again, "
            "--timeout SECONDS longer",
        ) from None


async def _until_ready(
    client: ObjectClient, deployment: Obj, said: dict[str, str], say: Callable[[str], None]
) -> None:
    metadata = deployment["metadata"]
    title, namespace = f"deployment/{metadata['name']}", metadata["namespace"]
    labels = deployment["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    while True:
        live = await client.get(DEPLOYMENTS, metadata["name"], namespace)
        if is_rolled_out(live):
            say(f"{title} ready")
            return
        pods = (await client.list(PODS, namespace, label_selector=selector)).items
        told = why_not(live, pods)
        if said.get(title) != told:
            said.pop(title, None)
            said[title] = told
            say(f"waiting for {title}: {told}")
        _refuse_lost_images(title, pods)
        await asyncio.sleep(POLL_S)


def _refuse_lost_images(title: str, pods: Sequence[Obj]) -> None:
    for pod in pods:
        found = pending_reason_of(pod)
        if found and found.kind in IMAGE_NOT_THERE:
            raise ClusterError(
                f"{title} cannot start: {found}",
                hint="bring the images to the nodes, or to a registry: `gangline image push ARCHIVE "
                "REGISTRY/NAME`, and then --image-prefix REGISTRY",
            )
