"""Carries decisions out: binds a gang's pods at once, takes a gang back that fails half-way, evicts.

A bound pod cannot be unbound. When some pods of a gang are bound and another cannot be, or a node refuses one
after the binding, the pods of this attempt are deleted with the condition ``DisruptionTarget``, so that the
job's controller makes them anew without counting it as a failure of the program.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from gangline import clock
from gangline.api.core import ObjectMeta
from gangline.api.resources import NODES, PODS
from gangline.kube.errors import ApiError, Conflict, NotFound, ServerError, TooManyRequests, Unavailable
from gangline.kube.events import Recorder
from gangline.kube.verbs import ObjectClient
from gangline.placement import Binding, Unschedulable
from gangline.workloads.gpus import ANNOTATION as GPUS_ANNOTATION
from gangline.workloads.gpus import GPU_GROUP_ANNOTATION
from gangline.workloads.pending import GANG_WAITED, UNSCHEDULABLE

WRITES_AT_ONCE_MAX = 48

CALM_S = 0.5
"""For so long after a gang was bound other writes wait still, for the next gang often comes soon."""

RETRY_S = 0.5
RETRY_MAX_S = 30.0
"""Pauses between tries to take a pod away from a server that does not answer: the first, and the longest."""

GPU_VISIBLE_ANNOTATION = "topology.kubernetes.io/gpu-visible"
"""Indices of the GPUs of a pod's gang on its node. Source: arena, which shows them."""

TERMINATION_REASON = "PreemptionByScheduler"
"""Reason of DisruptionTarget for pods that a scheduler takes away. Source: Kubernetes, Pod disruption."""


class Binder:
    """Writes bindings and deletions.

    Args:
        client: of the cluster.
        recorder: for events about pods.
        quiet: set while nothing is being bound, nor has been for a moment.
    """

    def __init__(self, client: ObjectClient, recorder: Recorder, quiet: asyncio.Event) -> None:
        self._client = client
        self._recorder = recorder
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE_MAX)
        self._quiet = quiet
        self._quiet.set()
        self._gangs = 0
        self._calm: asyncio.TimerHandle | None = None

    async def bind_all(
        self, bindings: Sequence[Binding], gpus: Mapping[str, Sequence[str]]
    ) -> list[tuple[Binding, ApiError]]:
        """Bind the pods of a gang at once; return those that could not be, with the reason.

        Args:
            bindings: of the gang.
            gpus: by which names each pod asks for GPUs, by uid.
        """
        self._gangs += 1
        self._quiet.clear()
        if self._calm is not None:
            self._calm.cancel()
        try:
            errors = await self._client.post_all([_binding_request(one) for one in bindings])
        except ApiError as error:
            errors = [error] * len(bindings)
        finally:
            self._gangs -= 1
            if not self._gangs:
                self._calm = asyncio.get_running_loop().call_later(CALM_S, self._quiet.set)
        failed = []
        for binding, why in zip(bindings, errors, strict=True):
            if why is not None:
                failed.append((binding, why))
                continue
            message = f"Successfully assigned {binding.pod} to {binding.node}"
            if (asked := gpus.get(binding.uid)) and not binding.uuids:
                names = " and ".join(asked)
                message += f"; which {names} it gets there, the device plugin of the node chooses"
            self._recorder.event(regarding(binding.pod, binding.uid), "Normal", "Scheduled", message)
        return failed

    async def take_away(
        self, pods: Iterable[tuple[str, str]], message: str, *, event: str = "Preempted"
    ) -> None:
        """Delete pods, each (``NAMESPACE/NAME``, uid), to free their room; those that are gone are fine.

        All are marked before the first goes: when one ends, others of its gang fail at once, and that shall
        not count as a failure of the program.
        """
        chosen = list(pods)
        marked = await asyncio.gather(*(self._mark(key, uid, message) for key, uid in chosen))
        left = [pod for pod, is_there in zip(chosen, marked, strict=True) if is_there]
        gone = await asyncio.gather(*(self._delete(key, uid) for key, uid in left))
        for (key, uid), is_done in zip(left, gone, strict=True):
            if is_done:
                self._recorder.event(regarding(key, uid), "Warning", event, message)

    async def _mark(self, key: str, uid: str, message: str) -> bool:
        """Write that a pod ends through no fault of its own; return whether it is there."""
        namespace, name = key.split("/", 1)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": TERMINATION_REASON,
            "message": message,
            "lastTransitionTime": clock.format_time(clock.now()),
        }
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        return await self._insist(
            lambda: self._client.patch(PODS, name, patch, namespace, kind="strategic", subresource="status")
        )

    async def _delete(self, key: str, uid: str) -> bool:
        namespace, name = key.split("/", 1)
        return await self._insist(lambda: self._client.delete(PODS, name, namespace, uid=uid))

    async def _insist(self, write: Callable[[], Awaitable[object]]) -> bool:
        """Write until the server has taken it, or has said that the pod is gone; return whether it was there.

        Half of a gang must not stay because the server was away for a while.
        """
        pause_s = RETRY_S
        while True:
            try:
                async with self._writes:
                    await write()
            except (NotFound, Conflict):  # a conflict: another pod has the name now
                return False
            except (Unavailable, TooManyRequests, ServerError):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
            except ApiError as error:
                import structlog  # late: 30 ms that the command line does not pay

                structlog.get_logger().error("pod not taken away", error=str(error))
                return False
            else:
                return True

    async def report(self, waiting: Unschedulable) -> bool:
        """Write why a pod waits into its conditions, and an event; return whether it was written."""
        namespace, name = waiting.pod.split("/", 1)
        now = clock.format_time(clock.now())
        conditions = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": UNSCHEDULABLE,
                "message": waiting.message,
                "lastTransitionTime": now,
            }
        ]
        if waiting.gang:
            gang = {"type": GANG_WAITED, "status": "True", "reason": waiting.reason}
            conditions.append({**gang, "lastTransitionTime": now})
        patch = {"metadata": {"uid": waiting.uid}, "status": {"conditions": conditions}}
        try:
            async with self._writes:
                await self._client.patch(PODS, name, patch, namespace, kind="strategic", subresource="status")
        except ApiError:
            return False
        about = regarding(waiting.pod, waiting.uid)  # afterwards, or each try would count as one
        self._recorder.event(about, "Warning", "FailedScheduling", waiting.message)
        return True


def _binding_request(binding: Binding) -> tuple[str, dict[str, Any]]:
    """Return path and body by which a pod is bound."""
    namespace, name = binding.pod.split("/", 1)
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": binding.uid}
    if binding.gpus:  # of a claim too: whoever looks at the pod sees its GPUs
        metadata["annotations"] = gpu_annotations(binding)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": binding.node},
    }
    return PODS.path(namespace, name, "binding"), body


def gpu_annotations(binding: Binding) -> dict[str, str]:
    """Return what tells node agent and device plugin which GPUs a pod has, and arena their indices."""
    by_container: dict[str, list[str]] = {}
    for name, uuids in binding.gpus:  # one by one: a container may use several claims
        by_container.setdefault(name, []).extend(uuids)
    return {
        GPUS_ANNOTATION: json.dumps(by_container),
        GPU_GROUP_ANNOTATION: ",".join(map(str, binding.indices)),
        GPU_VISIBLE_ANNOTATION: ",".join(map(str, binding.visible)),
    }


def regarding(key: str, uid: str) -> tuple[str, str, ObjectMeta]:
    """Return what an event about a pod is about."""
    namespace, name = key.split("/", 1)
    return PODS.api_version, PODS.kind, ObjectMeta(name=name, namespace=namespace, uid=uid)
