"""Equal pods race for the GPUs of a node: our scheduler and device plugin beside a stand-in kubelet."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from typing import Any

from gangline.api.resources import NODES, PODS
from gangline.deviceplugin import podresources_pb2 as podresources
from gangline.deviceplugin import protocol
from gangline.deviceplugin import v1beta1_pb2 as api
from gangline.deviceplugin.gpu_source import of_values
from gangline.deviceplugin.node_pods import NodePods
from gangline.deviceplugin.plugin import DevicePlugin
from gangline.devices.inventory import RESOURCE
from gangline.devices.simulated import simulate
from gangline.kube.client import Client

NODE = "n"
LIMIT_S = 60.0
POLL_S = 0.01


class StandInKubelet:
    """Gives devices as a kubelet's device manager does, and lists who has them; it runs nothing.

    Args:
        client: of the cluster.
        folder: for the sockets.
        seed: decides in which order it takes pods that came together.
    """

    def __init__(self, client: Client, folder: Path, seed: int) -> None:
        self._client = client
        self._folder = folder
        self._rng = random.Random(seed)
        self._devices: list[str] = []
        self._held: dict[str, list[str]] = {}
        self._registered = asyncio.Event()
        self.given: dict[str, list[str]] = {}
        self.not_as_chosen = 0
        self.allocate_s: list[float] = []

    @property
    def lister(self) -> Path:
        return self._folder / "list.sock"

    async def run(self, pods: int) -> None:
        """Take pods until so many have had their GPUs, been told so and ended."""
        takes = {"Register": self._register}
        registration = await protocol.serve(self._folder / "kubelet.sock", protocol.REGISTRATION, takes)
        lister = await protocol.serve(self.lister, protocol.POD_RESOURCES, {"List": self._list})
        await self._registered.wait()
        async with protocol.connect(self._folder / "nvidia.sock") as channel:
            stream = protocol.method(channel, protocol.PLUGIN, "ListAndWatch")(api.Empty())
            self._devices = [device.ID for device in (await anext(aiter(stream))).devices]
            amounts = {"cpu": "64", "memory": "64Gi", "pods": "1000", RESOURCE: str(len(self._devices))}
            status = {"capacity": amounts, "allocatable": amounts}
            await self._client.patch(NODES, NODE, {"status": status}, subresource="status")
            async with asyncio.TaskGroup() as lives:
                while len(self.given) < pods:
                    bound = await self._client.list(PODS, field_selector=f"spec.nodeName={NODE}")
                    new = [pod for pod in bound.items if pod["metadata"]["name"] not in self.given]
                    self._rng.shuffle(new)
                    for pod in new:
                        await self._admit(channel, pod)
                        lives.create_task(self._live(pod["metadata"]["name"]))
                    await asyncio.sleep(POLL_S)
        await lister.stop(None)
        await registration.stop(None)

    async def _register(self, request: Any, context: Any) -> Any:
        self._registered.set()
        return api.Empty()

    async def _list(self, request: Any, context: Any) -> Any:
        return podresources.ListPodResourcesResponse(
            pod_resources=[
                podresources.PodResources(
                    name=name,
                    namespace="default",
                    containers=[
                        podresources.ContainerResources(
                            name="main",
                            devices=[podresources.ContainerDevices(resource_name=RESOURCE, device_ids=ids)],
                        )
                    ],
                )
                for name, ids in self._held.items()
            ]
        )

    async def _admit(self, channel: Any, pod: Any) -> None:
        name = pod["metadata"]["name"]
        count = int(pod["spec"]["containers"][0]["resources"]["limits"][RESOURCE])
        free = [one for one in self._devices if not any(one in ids for ids in self._held.values())]
        self._rng.shuffle(free)
        wish = api.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=count)
        answer = await protocol.method(channel, protocol.PLUGIN, "GetPreferredAllocation")(
            api.PreferredAllocationRequest(container_requests=[wish])
        )
        ids = list(answer.container_responses[0].deviceIDs)
        assert len(set(ids)) == count, f"{name}: {count} wanted of {free}, {ids} preferred"
        assert set(ids) <= set(free), f"{name} would get what another pod has"
        one = api.ContainerAllocateRequest(devices_ids=ids)
        started_s = time.perf_counter()
        allocated = await protocol.method(channel, protocol.PLUGIN, "Allocate")(
            api.AllocateRequest(container_requests=[one])
        )
        self.allocate_s.append(time.perf_counter() - started_s)
        seen = allocated.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert sorted(seen) == sorted(ids)
        chosen = json.loads(pod["metadata"]["annotations"]["gangline.dev/gpus"])["main"]
        self.not_as_chosen += set(chosen) != set(ids)
        self._held[name] = self.given[name] = ids

    async def _live(self, name: str) -> None:
        """End once the pod's annotation says what it has."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                pod = await self._client.get(PODS, name, "default")
                said = json.loads(pod["metadata"]["annotations"]["gangline.dev/gpus"])["main"]
                if set(said) == set(self._held[name]):
                    break
                await asyncio.sleep(POLL_S)
        await asyncio.sleep(self._rng.random() / 20)
        del self._held[name]
        await self._client.delete(PODS, name, "default", grace_period_s=0)


async def race(client: Client, folder: Path, pods: int, seed: int = 1) -> StandInKubelet:
    """Let pods of one and two GPUs race for a node of eight; the scheduler runs, the node is there.

    Raises:
        AssertionError: a pod would have got what another one has.
        TimeoutError: a pod was not told what it has.
    """
    kubelet = StandInKubelet(client, folder, seed)
    source = of_values(simulate(NODE, 8, "v100-dgx1"))
    lines: list[str] = []
    node_pods = NodePods(client, NODE, lines.append, kubelet.lister)
    plugin = asyncio.create_task(DevicePlugin(folder, source, lines.append, cluster=node_pods).run())
    try:
        running = asyncio.create_task(kubelet.run(pods))
        for index in range(pods):
            limits = {RESOURCE: str(1 + index % 2)}
            container = {"name": "main", "image": "x", "resources": {"limits": limits}}
            spec = {"containers": [container], "schedulerName": "gangline-scheduler"}
            spec["terminationGracePeriodSeconds"] = 0
            metadata = {"name": f"p-{index}", "namespace": "default"}
            manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            await client.create(PODS, manifest)
        await running
    finally:
        plugin.cancel()
    assert not [line for line in lines if "cannot" in line], lines
    return kubelet
