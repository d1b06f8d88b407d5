"""The kubelet's end of the device plugin API, as a program: it has plugins register, watches and asks them.

The node agent of the one-machine cluster starts it when a pod mounts the folder of the sockets, so that the
agent itself goes without gRPC. Both write JSON, one object a line. On standard input come requests, each
answered on standard output by its ``id`` with ``answer`` or ``error``:

``{"id", "do": "serve" | "close", "folder"}``
``{"id", "do": "allocate", "folder", "resource", "available": [...], "included": [...], "count"}``

What plugins tell comes unasked: ``{"folder", "resource", "devices": {id: healthy}}``, with ``null`` once a
plugin is gone. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gangline.deviceplugin import protocol
from gangline.deviceplugin import v1beta1_pb2 as api

CALL_TIMEOUT_S = 10.0
LINE_BYTES_MAX = 1 << 22
"""A line with all devices of a node that has very many."""
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""``nvidia.com/mig-1g.5gb``."""
Json = dict[str, Any]


class Plugin:
    """One registered plugin: its options, and its devices for as long as it streams them."""

    def __init__(self, channel: grpc.aio.Channel, tell: Callable[[dict[str, bool] | None], None]) -> None:
        self._channel = channel
        self._tell = tell
        self._options = api.DevicePluginOptions()
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Ask for the plugin's options and watch its devices; ``AioRpcError`` if it does not answer."""
        self._options = await self._call("GetDevicePluginOptions", api.Empty())
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Let go of the plugin; nothing more is told of it."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._channel.close()

    async def _watch(self) -> None:
        stream = protocol.method(self._channel, protocol.PLUGIN, "ListAndWatch")(api.Empty())
        try:
            async for answer in stream:
                self._tell({one.ID: one.health == protocol.HEALTHY for one in answer.devices})
        except grpc.aio.AioRpcError:
            pass  # the plugin ended, as at the end of the stream
        self._tell(None)

    async def allocate(self, available: list[str], included: list[str], count: int) -> Json:
        """Choose devices, the plugin's choice first where it has one, and return what comes with them."""
        chosen = list(included)
        if self._options.get_preferred_allocation_available and len(included) < count < len(available):
            wish = api.ContainerPreferredAllocationRequest(
                available_deviceIDs=available, must_include_deviceIDs=included, allocation_size=count
            )
            answer = await self._call(
                "GetPreferredAllocation", api.PreferredAllocationRequest(container_requests=[wish])
            )
            chosen += [one for answered in answer.container_responses for one in answered.deviceIDs]
        chosen = [one for one in dict.fromkeys([*chosen, *available]) if one in available][:count]
        one = api.ContainerAllocateRequest(devices_ids=chosen)
        answer = await self._call("Allocate", api.AllocateRequest(container_requests=[one]))
        if self._options.pre_start_required:
            await self._call("PreStartContainer", api.PreStartContainerRequest(devices_ids=chosen))
        found = (
            answer.container_responses[0] if answer.container_responses else api.ContainerAllocateResponse()
        )
        return {
            "devices": chosen,
            "variables": dict(found.envs),
            "mounts": [[one.container_path, one.host_path, one.read_only] for one in found.mounts],
            "files": [[one.container_path, one.host_path] for one in found.devices],
            "cdi": [one.name for one in found.cdi_devices],
        }

    async def _call(self, name: str, request: Any) -> Any:
        return await protocol.method(self._channel, protocol.PLUGIN, name)(request, timeout=CALL_TIMEOUT_S)


class Registrations:
    """The plugins of every served folder. ``write`` takes what is told unasked."""

    def __init__(self, write: Callable[[Json], None]) -> None:
        self._write = write
        self._servers: dict[str, grpc.aio.Server] = {}
        self._plugins: dict[tuple[str, str], Plugin] = {}

    async def serve(self, folder: str) -> None:
        """Have plugins register in a folder; sockets that are left there go, by which they notice."""
        for path in Path(folder).iterdir():
            if path.is_socket():
                path.unlink(missing_ok=True)

        async def register(request: api.RegisterRequest, context: Any) -> api.Empty:
            if refusal := refusal_of(request):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, refusal)
            try:
                await self._take(folder, request)
            except grpc.aio.AioRpcError as error:
                await context.abort(
                    grpc.StatusCode.UNAVAILABLE, f"the plugin does not answer: {error.details()}"
                )
            return api.Empty()

        socket = Path(folder, protocol.KUBELET_SOCKET)
        self._servers[folder] = await protocol.serve(socket, protocol.REGISTRATION, {"Register": register})

    async def _take(self, folder: str, request: api.RegisterRequest) -> None:
        key = folder, request.resource_name

        def tell(devices: dict[str, bool] | None) -> None:
            self._write({"folder": folder, "resource": request.resource_name, "devices": devices})

        plugin = Plugin(protocol.connect(Path(folder, request.endpoint)), tell)
        try:
            await plugin.open()
        except grpc.aio.AioRpcError:
            await plugin.close()
            raise
        if before := self._plugins.get(key):  # the last to register has the resource
            await before.close()
        self._plugins[key] = plugin

    async def close(self, folder: str) -> None:
        """Forget a folder and its plugins."""
        if server := self._servers.pop(folder, None):
            await server.stop(None)
        for key in [key for key in self._plugins if key[0] == folder]:
            await self._plugins.pop(key).close()

    async def close_all(self) -> None:
        """Forget every folder."""
        for folder in list(self._servers):
            await self.close(folder)

    async def answer(self, request: Json) -> Json:
        """Do what is asked, and return the answer."""
        reply: Json = {"id": request["id"]}
        try:
            if request["do"] == "serve":
                await self.serve(request["folder"])
            elif request["do"] == "close":
                await self.close(request["folder"])
            else:
                plugin = self._plugins[request["folder"], request["resource"]]
                reply["answer"] = await plugin.allocate(
                    request["available"], request["included"], request["count"]
                )
        except grpc.aio.AioRpcError as error:
            reply["error"] = f"rpc error: code = {error.code().name} desc = {error.details()}"
        except (OSError, RuntimeError, KeyError) as error:
            reply["error"] = f"{type(error).__name__}: {error}"
        return {"answer": {}} | reply


def refusal_of(request: api.RegisterRequest) -> str:
    """Return why a registration is refused, empty when it is taken. Pure."""
    if request.version != protocol.VERSION:
        return f"unsupported version {request.version!r}, {protocol.VERSION} is served"
    name = request.resource_name
    if not _RESOURCE.fullmatch(name) or name.partition("/")[0].endswith("kubernetes.io"):
        return (
            f"invalid resource name {name!r}: it has to be DOMAIN/NAME of a domain other than kubernetes.io"
        )
    if "/" in request.endpoint or request.endpoint in ("", ".", ".."):
        return f"invalid endpoint {request.endpoint!r}: it is the name of a socket beside the kubelet's"
    return ""


async def main() -> None:
    """Serve standard input until it ends."""

    def write(message: Json) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    registrations, tasks = Registrations(write), set[asyncio.Task[None]]()
    lines = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def serve(request: Json) -> None:
        write(await registrations.answer(request))

    while line := await lines.readline():
        task = asyncio.create_task(serve(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await registrations.close_all()


if __name__ == "__main__":
    asyncio.run(main())
