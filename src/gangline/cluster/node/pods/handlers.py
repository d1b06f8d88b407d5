"""What probes and hooks do to a container: a command in it, a connection or a request to it, a sleep.

Connections are made from the node, as the kubelet does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
from typing import TYPE_CHECKING, Any

from gangline.api.core import Container
from gangline.cluster.node.shim_client import ShimError

if TYPE_CHECKING:
    from gangline.cluster.node.pods.sandbox import Sandbox

USER_AGENT = "kube-probe/1.35"


class HandlerRunner:
    """Those of one container."""

    def __init__(self, container: Container, sandbox: Sandbox) -> None:
        self._container = container
        self._sandbox = sandbox

    async def run(self, handler: dict[str, Any], timeout_s: float) -> str:
        """Run the one that a probe or hook names; return why it failed, empty when it succeeded."""
        try:
            async with asyncio.timeout(timeout_s):
                if "exec" in handler:
                    return await self._exec(handler["exec"].get("command", []))
                if "tcpSocket" in handler:
                    return await self._tcp(handler["tcpSocket"])
                if "httpGet" in handler:
                    return await self._http(handler["httpGet"])
                if "grpc" in handler:
                    return await self._grpc(handler["grpc"])
                if "sleep" in handler:
                    await asyncio.sleep(float(handler["sleep"].get("seconds") or 0))
                    return ""
        except TimeoutError:
            return f"no answer within {timeout_s:g} s"
        except (OSError, ShimError, ValueError) as error:
            return str(error)
        return f"`{next(iter(handler), '')}` is not served; use exec, tcpSocket, httpGet or grpc"

    def _port(self, port: int | str) -> int:
        if isinstance(port, int) or port.isdigit():
            return int(port)
        for known in self._container.ports:
            if known.name == port:
                return known.container_port
        raise ValueError(f"no port of the container is called `{port}`")

    async def _connect(
        self, target: dict[str, Any], tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = target.get("host") or self._sandbox.record.address
        return await asyncio.open_connection(host, self._port(target["port"]), ssl=tls, family=socket.AF_INET)

    async def _tcp(self, target: dict[str, Any]) -> str:
        _, writer = await self._connect(target)
        writer.close()
        return ""

    async def _http(self, target: dict[str, Any]) -> str:
        tls = ssl._create_unverified_context() if target.get("scheme") == "HTTPS" else None
        reader, writer = await self._connect(target, tls)
        try:
            given = [(one["name"], one["value"]) for one in target.get("httpHeaders", [])]
            own = {"Host": target.get("host") or self._sandbox.record.address, "User-Agent": USER_AGENT}
            named = {name.lower() for name, _ in given}  # they stand in place of ours
            headers = [*((name, text) for name, text in own.items() if name.lower() not in named), *given]
            lines = [
                f"GET {target.get('path') or '/'} HTTP/1.0",
                *(f"{name}: {text}" for name, text in headers),
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            status = (await reader.readline()).split(b" ")
            code = int(status[1]) if len(status) > 1 else 0
            return "" if 200 <= code < 400 else f"HTTP probe failed with statuscode: {code}"
        finally:
            writer.close()

    async def _grpc(self, target: dict[str, Any]) -> str:
        from gangline.cluster.node.pods.grpc_health import check_health  # imports h2, which few pods need

        reader, writer = await self._connect(target)
        try:
            authority = f"{self._sandbox.record.address}:{target['port']}"
            return await check_health(reader, writer, authority, target.get("service") or "", USER_AGENT)
        finally:
            writer.close()

    async def _exec(self, command: list[str]) -> str:
        path = str(self._sandbox.context.paths.pod_socket(self._sandbox.record.uid))
        process = await run_inside(path, self._container.name, command)
        return "" if process == 0 else f"command exited with {process}"


async def run_inside(control_socket: str, container: str, command: list[str]) -> int:
    """Run a command in a container without streams; return its exit code. Cancelling kills it."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, contextlib.ExitStack() as stack:
        connection.setblocking(False)
        await loop.sock_connect(connection, control_socket)
        null = os.open(os.devnull, os.O_RDWR)
        stack.callback(os.close, null)
        request = {"id": 1, "op": "exec", "name": container, "argv": command}
        socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], [null, null, null])
        buffer = b""
        while chunk := await loop.sock_recv(connection, 65536):
            *lines, buffer = (buffer + chunk).split(b"\n")
            for message in map(json.loads, lines):
                if "error" in message:
                    raise ShimError(str(message["error"]))
                if "exit" in message:
                    return int(message["exit"])
    raise ShimError("the pod has ended")
