"""What the cluster knows of the GPUs of a node: which were chosen for its pods, and which they got.

A kubelet asks for devices without saying for which pod. So a set that waits for its pod is given to the first
that asks for as many, and afterwards every pod is told what it has: the kubelet lists that. Equal pods may
have changed their sets then, and each annotation is true.
Source: Kubernetes, "Monitoring device plugin resources" (PodResourcesLister).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gangline.api.core import Pod
from gangline.api.resources import NODES, PODS
from gangline.deviceplugin import podresources_pb2 as podresources
from gangline.deviceplugin import protocol
from gangline.devices.inventory import (
    RESOURCE,
    TOPOLOGY_ANNOTATION,
    DeviceInventory,
    node_labels,
    topology_note,
)
from gangline.errors import GanglineError
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.verbs import ObjectClient
from gangline.train.checkpoint_log import CheckpointLogs
from gangline.workloads.gpus import ANNOTATION, GPU_GROUP_ANNOTATION, read_gpus
from gangline.workloads.suspension import CHECKPOINT_ANNOTATION

POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")

POD_LOGS = Path("/var/log/pods")
"""``NAMESPACE_POD_UID/CONTAINER/N.log``. Source: Kubernetes, "Logging Architecture"."""

ASK_TIMEOUT_S = 2.0
"""A pod does not wait longer for what was chosen for it; then the wires decide."""
RETRY_S = 10.0
CHECK_S = 30.0
"""How often pods are held against the kubelet's list where nothing was allocated."""
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""After an allocation: until the kubelet lists it."""

Held = Mapping[tuple[str, str], Mapping[str, Sequence[str]]]
"""Ids by (namespace, name) of the pod and container."""


def promised_sets(pods: Iterable[Pod]) -> list[frozenset[str]]:
    """Return the sets of GPUs that were chosen for containers of pods that go on, oldest first. Pure."""
    found = []
    for pod in sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or ""):
        if pod.is_finished:
            continue
        with suppress(ValueError):  # not written by a scheduler of ours
            chosen = read_gpus(pod.metadata.annotations.get(ANNOTATION))
            found += [frozenset(ids) for ids in chosen.values() if ids]
    return found


def untrue(pods: Iterable[Pod], held: Held, indices: Mapping[str, int]) -> list[tuple[Pod, dict[str, str]]]:
    """Return the pods whose annotations do not say what they have, with those that do. Pure.

    Args:
        pods: of the node.
        held: what the kubelet says.
        indices: of the node's GPUs, by id.
    """
    found = []
    for pod in pods:
        has = held.get((pod.metadata.namespace, pod.metadata.name))
        if not has or pod.is_finished:
            continue
        try:
            said = read_gpus(pod.metadata.annotations.get(ANNOTATION))
        except ValueError:
            said = {}
        if all(set(said.get(container, ())) == set(ids) for container, ids in has.items()):
            continue
        known = {name: sorted(ids, key=lambda one: indices.get(one, 0)) for name, ids in has.items()}
        numbers = sorted({indices[one] for ids in known.values() for one in ids if one in indices})
        notes = {
            ANNOTATION: json.dumps({**said, **known}, separators=(",", ":")),
            GPU_GROUP_ANNOTATION: ",".join(map(str, numbers)),
        }
        found.append((pod, notes))
    return found


class NodePods:
    """See the module's text.

    Args:
        client: of the cluster.
        node: the node's name.
        say: takes each line of the log.
        socket: of the kubelet, where it lists what its pods have.
        logs: of all pods of the node, as kubelets name them.
    """

    def __init__(
        self,
        client: ObjectClient,
        node: str,
        say: Callable[[str], None],
        socket: Path = POD_RESOURCES_SOCKET,
        logs: Path = POD_LOGS,
    ) -> None:
        self._client = client
        self._node = node
        self._say = say
        self._socket = socket
        self._logs = logs
        self._checkpoints = CheckpointLogs()
        self._indices: dict[str, int] = {}
        self._awaited: set[str] = set()
        self._allocated = asyncio.Event()
        self._trouble = ""

    async def publish(self, inventory: DeviceInventory) -> None:
        """Write GPUs, links and health on the node; until that has worked."""
        self._indices = {gpu.uuid: gpu.index for gpu in inventory.gpus}
        notes = {TOPOLOGY_ANNOTATION: topology_note(inventory)}
        patch = {"metadata": {"annotations": notes, "labels": node_labels(inventory)}}
        while True:
            try:
                await self._client.patch(NODES, self._node, patch)
            except GanglineError as error:
                self._say(f"Could not publish GPUs and links, retrying in {RETRY_S:.0f} s: {error}")
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def promised(self) -> list[frozenset[str]]:
        """Return the sets that were chosen for pods of the node; none where the cluster does not answer."""
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                return promised_sets(await self._pods())
        except (GanglineError, TimeoutError) as error:
            self._tell(
                f"Pods cannot be asked for, GPUs are chosen by the wires alone: {error or 'no answer'}"
            )
            return []

    def note(self, ids: Iterable[str]) -> None:
        """Some ids were allocated: hold the pods against the kubelet's list soon."""
        self._awaited.update(ids)
        self._allocated.set()

    async def keep_true(self) -> None:
        """Tell pods which GPUs they have, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._allocated.wait()
            self._allocated.clear()
            for pause_s in PAUSES_S:
                await asyncio.sleep(pause_s)
                if await self._correct() and not self._awaited:
                    break
            self._awaited.clear()

    async def _correct(self) -> bool:
        """Correct what is not true; return whether all was said."""
        try:
            held = await self._held()
            self._awaited -= {one for has in held.values() for ids in has.values() for one in ids}
            pods = await self._pods()
            for pod, notes in untrue(pods, held, self._indices):
                await self._write(pod, notes)
            for pod, time in await self._saved(pods, held):
                await self._write(pod, {CHECKPOINT_ANNOTATION: time})
        except grpc.aio.AioRpcError as error:
            self._tell(f"{self._socket} cannot be asked which GPUs pods have: {error.details()}")
            return False
        except GanglineError as error:
            self._tell(f"Pods cannot be told which GPUs they have: {error}")
            return False
        return True

    async def _write(self, pod: Pod, notes: Mapping[str, str]) -> None:
        metadata = {"uid": pod.metadata.uid, "annotations": notes}
        with suppress(NotFound, Conflict):  # gone, or another pod of its name
            await self._client.patch(PODS, pod.metadata.name, {"metadata": metadata}, pod.metadata.namespace)

    async def _saved(self, pods: Iterable[Pod], held: Held) -> list[tuple[Pod, str]]:
        """Return the pods with GPUs whose training has saved its state since the last look, and when."""
        found = {
            pod.metadata.uid: pod
            for pod in pods
            if (pod.metadata.namespace, pod.metadata.name) in held and not pod.is_finished
        }
        folders = {
            uid: self._logs / f"{pod.metadata.namespace}_{pod.metadata.name}_{uid}"
            for uid, pod in found.items()
        }
        times = await asyncio.to_thread(self._checkpoints.news, folders)
        return [(found[uid], time) for uid, time in times.items()]

    async def _pods(self) -> list[Pod]:
        return (await self._client.list_as(PODS, Pod, field_selector=f"spec.nodeName={self._node}")).items

    async def _held(self) -> dict[tuple[str, str], dict[str, list[str]]]:
        async with protocol.connect(self._socket) as channel:
            call = protocol.method(channel, protocol.POD_RESOURCES, "List")
            answer: Any = await call(podresources.ListPodResourcesRequest(), timeout=ASK_TIMEOUT_S)
        found: dict[tuple[str, str], dict[str, list[str]]] = {}
        for pod in answer.pod_resources:
            for container in pod.containers:
                ids = [
                    one
                    for has in container.devices
                    if has.resource_name == RESOURCE
                    for one in has.device_ids
                ]
                if ids:
                    found.setdefault((pod.namespace, pod.name), {})[container.name] = ids
        return found

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:  # a line for each new trouble, not for each pod
            self._say(trouble)
        self._trouble = trouble
