"""The device plugin: serves a node's GPUs to its kubelet, and registers with each kubelet that starts there.

Source: the stock plugin's life and log lines, as of 2019.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gangline.deviceplugin import protocol
from gangline.deviceplugin import v1beta1_pb2 as api
from gangline.deviceplugin.answers import given, preferred
from gangline.deviceplugin.gpu_source import GpuSource, as_now
from gangline.deviceplugin.node_pods import NodePods
from gangline.devices.driver_files import device_files
from gangline.devices.find import FoundDevices, find_gpus
from gangline.devices.inventory import RESOURCE, DeviceInventory

SOCKET = "nvidia.sock"
LOOK_S = 1.0
"""How often the sockets are looked at: inodes tell of a new kubelet without a watch that can run out."""
REGISTER_RETRY_S = 10.0
CALL_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 20.0
"""A driver that does not answer by then has no healthy GPU."""


class DevicePlugin:
    """See the module's text.

    Args:
        folder: of the kubelet's socket and the plugin's.
        source: of the node's GPUs.
        say: takes each line of the log.
        cluster: what it says of the node's pods; None where it cannot be asked.
        find: the machine's GPUs, for what the log says of NVML.
    """

    def __init__(
        self,
        folder: Path,
        source: GpuSource,
        say: Callable[[str], None],
        find: Callable[[], FoundDevices] = find_gpus,
        cluster: NodePods | None = None,
    ) -> None:
        self._folder = folder
        self._source = source
        self._say = say
        self._find = find
        self._cluster = cluster
        self._inventory = DeviceInventory()
        self._changed = asyncio.Condition()
        self.allocations = 0
        """Containers that were given GPUs since the start."""

    @property
    def inventory(self) -> DeviceInventory:
        """The GPUs as they are now."""
        return self._inventory

    @property
    def _socket(self) -> Path:
        return self._folder / SOCKET

    async def run(self) -> None:
        """Serve until cancelled; without a GPU wait until there is one."""
        self._say("Loading NVML")
        machine = await asyncio.to_thread(self._find)
        if machine.trouble or machine.inventory.source != "nvml":
            self._say(f"Failed to initialize NVML: {machine.trouble or 'could not load NVML library'}.")
        self._say("Fetching devices.")
        self._inventory = await self._read()
        if not self._inventory.gpus:
            self._say("No devices found. Waiting indefinitely.")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_looking())
            async with self._changed:
                await self._changed.wait_for(lambda: self._inventory.gpus)
            self._say(f"{self._inventory.in_words}, {self._source.origin}: {self._inventory.model}")
            if self._cluster is not None:
                tasks.create_task(self._keep_published(self._cluster))
                tasks.create_task(self._cluster.keep_true())
            self._say("Starting FS watcher.")
            self._say("Starting OS watcher.")
            await self._keep_registered()

    # GPUs

    async def _read(self) -> DeviceInventory:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                found = await asyncio.to_thread(self._source.read)
        except (OSError, ValueError, TimeoutError) as error:
            self._say(f"GPUs cannot be asked: {error or type(error).__name__}")
            found = self._inventory if self._inventory.is_simulated else DeviceInventory()
        return as_now(self._inventory, found)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._source.period_s)
            found = await self._read()
            if found == self._inventory:
                continue
            before = {gpu.uuid: gpu.healthy for gpu in self._inventory.gpus}
            for gpu in found.gpus:
                if before.get(gpu.uuid, gpu.healthy) != gpu.healthy:
                    self._say(f"GPU {gpu.uuid} is {_health(gpu.healthy)}")
            async with self._changed:
                self._inventory = found
                self._changed.notify_all()

    async def _keep_published(self, cluster: NodePods) -> None:
        while True:
            told = self._inventory
            await cluster.publish(told)
            async with self._changed:
                await self._changed.wait_for(lambda told=told: self._inventory is not told)  # type: ignore[misc]

    # The kubelet

    async def _keep_registered(self) -> None:
        while True:
            self._say(f"Starting to serve on {self._socket}")
            server = await protocol.serve(self._socket, protocol.PLUGIN, self._methods())
            try:
                self._say(await self._until_restart())
            finally:
                await server.stop(None)
                self._socket.unlink(missing_ok=True)

    async def _until_restart(self) -> str:
        """Register, and return why to begin anew: the kubelet did, or took the socket away."""
        kubelet = self._folder / protocol.KUBELET_SOCKET
        loop = asyncio.get_running_loop()
        mark, own, tried_at_s, is_registered = _mark(kubelet), _mark(self._socket), -REGISTER_RETRY_S, False
        while True:
            if not is_registered and mark is not None and loop.time() - tried_at_s >= REGISTER_RETRY_S:
                tried_at_s, is_registered = loop.time(), await self._register(kubelet)
            await asyncio.sleep(LOOK_S)
            now = _mark(kubelet)
            if now not in (None, mark):
                return f"{kubelet} created, restarting."
            if _mark(self._socket) != own:
                return f"{self._socket} removed, restarting."

    async def _register(self, kubelet: Path) -> bool:
        request = api.RegisterRequest(
            version=protocol.VERSION, endpoint=SOCKET, resource_name=RESOURCE, options=_OPTIONS
        )
        try:
            async with protocol.connect(kubelet) as channel:
                call = protocol.method(channel, protocol.REGISTRATION, "Register")
                await call(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self._say(
                f"Could not register with Kubelet, retrying in {REGISTER_RETRY_S:.0f} s: {error.details()}"
            )
            return False
        self._say("Registered device plugin with Kubelet")
        return True

    # Its calls

    def _methods(self) -> dict[str, Any]:
        return {
            "GetDevicePluginOptions": self._options,
            "ListAndWatch": self._list_and_watch,
            "GetPreferredAllocation": self._prefer,
            "Allocate": self._allocate,
            "PreStartContainer": self._pre_start,
        }

    async def _options(self, request: Any, context: Any) -> api.DevicePluginOptions:
        return _OPTIONS

    async def _pre_start(self, request: Any, context: Any) -> api.PreStartContainerResponse:
        return api.PreStartContainerResponse()

    async def _list_and_watch(self, request: Any, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        while True:
            told = self._inventory
            yield api.ListAndWatchResponse(
                devices=[
                    api.Device(
                        ID=gpu.uuid,
                        health=_health(gpu.healthy),
                        topology=None
                        if gpu.numa is None
                        else api.TopologyInfo(nodes=[api.NUMANode(ID=gpu.numa)]),
                    )
                    for gpu in told.gpus
                ]
            )
            async with self._changed:
                await self._changed.wait_for(lambda told=told: self._inventory is not told)  # type: ignore[misc]

    async def _prefer(
        self, request: api.PreferredAllocationRequest, context: Any
    ) -> api.PreferredAllocationResponse:
        answers = []
        promised = await self._cluster.promised() if self._cluster is not None else ()
        for one in request.container_requests:
            ids = one.available_deviceIDs, one.must_include_deviceIDs
            chosen = preferred(self._inventory, *ids, one.allocation_size, promised)
            answers.append(api.ContainerPreferredAllocationResponse(deviceIDs=chosen))
        return api.PreferredAllocationResponse(container_responses=answers)

    async def _allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        answers = []
        for one in request.container_requests:
            try:
                found = given(self._inventory, one.devices_ids)
            except KeyError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown device: {error.args[0]}")
                raise
            files = device_files(found.minors)
            specs = [api.DeviceSpec(container_path=one, host_path=one, permissions="rw") for one in files]
            self.allocations += 1
            answers.append(api.ContainerAllocateResponse(envs=found.variables, devices=specs))
            if self._cluster is not None:
                self._cluster.note(one.devices_ids)
        return api.AllocateResponse(container_responses=answers)


_OPTIONS = api.DevicePluginOptions(get_preferred_allocation_available=True)


def _health(healthy: bool) -> str:
    return protocol.HEALTHY if healthy else protocol.UNHEALTHY


def _mark(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from one made anew under its name, None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
