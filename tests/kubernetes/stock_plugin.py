"""A stand-in for a maker's own device plugin: its GPUs are names; it chooses none and tells of none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gangline.deviceplugin import protocol
from gangline.deviceplugin import v1beta1_pb2 as api

SOCKET = "stand-in.sock"


class StandInStockPlugin:
    """What the stock plugin answers with its defaults: no preference, and ids in a variable."""

    def __init__(self, ids: list[str]) -> None:
        self._ids = ids
        self.allocated: list[tuple[str, ...]] = []

    async def _options(self, request: Any, context: Any) -> api.DevicePluginOptions:
        return api.DevicePluginOptions()

    async def _list(self, request: Any, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        devices = [api.Device(ID=one, health=protocol.HEALTHY) for one in self._ids]
        yield api.ListAndWatchResponse(devices=devices)
        await asyncio.Event().wait()

    async def _allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        answers = []
        for one in request.container_requests:
            self.allocated.append(tuple(one.devices_ids))
            envs = {"NVIDIA_VISIBLE_DEVICES": ",".join(one.devices_ids)}
            answers.append(api.ContainerAllocateResponse(envs=envs))
        return api.AllocateResponse(container_responses=answers)


@asynccontextmanager
async def stock_plugin(folder: Path, resource: str, ids: list[str]) -> AsyncIterator[StandInStockPlugin]:
    """Serve ids as a resource to the kubelet whose sockets are in a folder."""
    plugin = StandInStockPlugin(ids)
    methods = {
        "GetDevicePluginOptions": plugin._options,
        "ListAndWatch": plugin._list,
        "Allocate": plugin._allocate,
    }
    server = await protocol.serve(folder / SOCKET, protocol.PLUGIN, methods)
    try:
        async with protocol.connect(folder / protocol.KUBELET_SOCKET) as channel:
            request = api.RegisterRequest(version=protocol.VERSION, endpoint=SOCKET, resource_name=resource)
            await protocol.method(channel, protocol.REGISTRATION, "Register")(request, timeout=10)
        yield plugin
    finally:
        await server.stop(None)
