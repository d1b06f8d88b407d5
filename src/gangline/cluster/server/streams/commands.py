"""``pods/exec`` and ``pods/attach``: a program of a running container, its streams over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import web

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.pod_streams import DRAIN_S, Descriptor, NotRunningError, PodProcess
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.request_context import RequestContext, RequestParameters
from gangline.cluster.server.streams.channels import (
    CLOSE,
    ERROR,
    PROTOCOLS,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    Channels,
    WebSocketChannels,
    keep_alive,
    open_web_socket,
    protocol_of,
)
from gangline.cluster.server.streams.spdy_channels import (
    COMMAND_PROTOCOLS,
    SpdyChannels,
    is_spdy,
    open_spdy,
    spdy_protocol,
)
from gangline.cluster.server.verbs.logs import container_of

SUCCESS = {"metadata": {}, "status": "Success"}


async def exec_command(api: ApiContext, context: RequestContext) -> web.StreamResponse:
    """Answer ``pods/exec``."""
    return await exec_in(api.paths, pod_of(api, context), context)


async def attach(api: ApiContext, context: RequestContext) -> web.StreamResponse:
    """Answer ``pods/attach``."""
    return await attach_to(api.paths, pod_of(api, context), context)


async def exec_in(paths: ClusterPaths, pod: dict[str, Any], context: RequestParameters) -> web.StreamResponse:
    """Answer with the streams of a program that is started in a container of a pod.

    Raises:
        StatusError: 400, no such container, or no command or stream is named.
    """
    container, wanted = _asked(pod, context)
    command = context.query.getall("command", [])
    if not command:
        raise status_errors.bad_request("you must specify at least one command for the container")
    control = paths.pod_socket(pod["metadata"]["uid"])
    start = PodProcess.start(control, container["name"], command, **wanted, tty=context.flag("tty"))
    return await _answer(context, container["name"], start, exit_status)


async def attach_to(
    paths: ClusterPaths, pod: dict[str, Any], context: RequestParameters
) -> web.StreamResponse:
    """Answer with the streams of a container's own program; as ``exec_in``."""
    container, wanted = _asked(pod, context)
    wanted["stdin"] &= bool(container.get("stdin"))
    wanted["stderr"] &= not container.get("tty")
    start = PodProcess.attach(paths.pod_socket(pod["metadata"]["uid"]), container["name"], **wanted)
    return await _answer(context, container["name"], start, lambda _: SUCCESS)


async def _answer(
    context: RequestParameters,
    container: str,
    start: Coroutine[Any, Any, PodProcess],
    status_of: Callable[[int | None], dict[str, Any]],
) -> web.StreamResponse:
    try:
        check = (
            spdy_protocol(context, COMMAND_PROTOCOLS) if is_spdy(context) else protocol_of(context, PROTOCOLS)
        )
    except BaseException:
        start.close()
        raise
    try:
        process = await start
    except NotRunningError:
        # In plain words, as a kubelet: kubectl puts its own before them.
        return web.Response(status=500, text=f'container not found ("{container}")')
    try:
        channels, response = await _open(context, check)
        with contextlib.suppress(ConnectionError):
            await channels.finish(await _serve(process, channels, status_of))
        return response
    finally:
        process.close()


async def _open(context: RequestParameters, protocol: str) -> tuple[Channels, web.StreamResponse]:
    """Answer with the channels that the client asks for; as ``open_web_socket``."""
    if not is_spdy(context):
        web_socket, response = await open_web_socket(context, PROTOCOLS)
        return WebSocketChannels(web_socket, protocol), response
    transport, response = await open_spdy(context, COMMAND_PROTOCOLS)
    channels = SpdyChannels(transport)
    wanted = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR}
    asked = {channel for name, channel in wanted.items() if context.flag(name)}
    is_terminal = context.flag("tty")
    await channels.opened({*(asked - {STDERR} | {RESIZE} if is_terminal else asked), ERROR})
    return channels, response


def _asked(pod: dict[str, Any], context: RequestParameters) -> tuple[dict[str, Any], dict[str, bool]]:
    """Return the container, and which streams are asked for.

    Raises:
        StatusError: 400 no such container, or no stream.
    """
    name = container_of(pod, context.query.get("container", ""))
    kinds = ("containers", "initContainers", "ephemeralContainers")
    containers = [one for kind in kinds for one in pod["spec"].get(kind) or []]
    wanted = {stream: context.flag(stream) for stream in ("stdin", "stdout", "stderr")}
    if not any(wanted.values()):
        raise status_errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    return next(one for one in containers if one["name"] == name), wanted


def pod_of(api: ApiContext, context: RequestContext) -> dict[str, Any]:
    """Return the pod that is meant.

    Raises:
        StatusError: 404 no such pod, 400 one without a node.
    """
    target = context.target
    entry = api.store.get(*target.key)
    if entry is None:
        raise status_errors.not_found(target.served, target.name)
    if not (entry.obj.get("spec") or {}).get("nodeName"):
        raise status_errors.bad_request(f"pod {target.name} does not have a host assigned")
    return entry.obj


def exit_status(code: int | None) -> dict[str, Any]:
    """Return the ``Status`` that tells an exit code; None for that of a program gone with its pod."""
    if code == 0:
        return SUCCESS
    if code is None:
        return failure_status("the pod has ended")
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failure_status(message: str) -> dict[str, Any]:
    """Return the ``Status`` of a program that could not be executed, or is gone."""
    text = f"Internal error occurred: {message}"
    causes = [{"message": message}]
    return {
        "metadata": {},
        "status": "Failure",
        "message": text,
        "reason": "InternalError",
        "details": {"causes": causes},
        "code": 500,
    }


async def _serve(
    process: PodProcess, channels: Channels, status_of: Callable[[int | None], dict[str, Any]]
) -> dict[str, Any]:
    """Carry the streams until the program ends or the client goes; return how it ended."""
    if process.failure:
        return failure_status(f"error executing command in container: {process.failure}")
    outputs = [
        asyncio.create_task(_send_all(channels, number, output)) for number, output in process.outputs.items()
    ]
    others = [
        asyncio.create_task(_take_all(channels, process)),
        asyncio.create_task(keep_alive(channels)),
    ]
    end = asyncio.create_task(process.wait())
    try:
        await asyncio.wait([end, *others], return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            raise ConnectionResetError("the client has gone")
        if outputs:
            await asyncio.wait(outputs, timeout=DRAIN_S)
            for output in process.outputs.values():
                output.end()
            await asyncio.wait(outputs)  # a client that is slow is waited for, a process left behind is not
        return status_of(end.result())
    finally:
        for task in (end, *outputs, *others):
            task.cancel()
        await asyncio.gather(end, *outputs, *others, return_exceptions=True)


async def _send_all(channels: Channels, number: int, output: Descriptor) -> None:
    while chunk := await output.read():
        await channels.send(number, chunk)


async def _take_all(channels: Channels, process: PodProcess) -> None:
    """Take what the client sends until it closes."""
    while (message := await channels.receive()) is not None:
        channel, data = message
        if channel == STDIN and process.stdin is not None:
            await process.stdin.write(data)
        elif channel == RESIZE:
            _resize(process, bytes(data))
        elif channel == CLOSE and bytes(data) == bytes((STDIN,)) and process.stdin is not None:
            process.end_input()


def _resize(process: PodProcess, data: bytes) -> None:
    """Set the size that ``{"Width": 80, "Height": 24}`` tells; what tells none is passed over."""
    with contextlib.suppress(ValueError, TypeError, KeyError, OSError):
        size = json.loads(data)
        process.resize(int(size["Width"]), int(size["Height"]))
