"""Startup, readiness and liveness probes of one container: exec, tcpSocket and httpGet, over its own address.

Probe runs of one kind never overlap. The connections are made from the node, as the kubelet does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gangline.api.core import Container
from gangline.cluster.node.shim_client import ShimError

if TYPE_CHECKING:
    from gangline.cluster.node.pods.sandbox import Sandbox

_KINDS = ("startup", "liveness", "readiness")


def probe_of(container: Container, kind: str) -> dict[str, Any] | None:
    """Return one probe of a container, None when it has none."""
    found: dict[str, Any] | None = getattr(container, f"{kind}_probe")
    return found


def has_probes(container: Container) -> bool:
    """Return whether readiness or life of a container is probed."""
    return any(probe_of(container, kind) for kind in _KINDS)


class ProbeCounter:
    """Counts results of one probe against its thresholds. Pure."""

    def __init__(self, probe: dict[str, Any], *, initially: bool) -> None:
        self._success_threshold = int(probe.get("successThreshold") or 1)
        self._failure_threshold = int(probe.get("failureThreshold") or 3)
        self._run = 0
        self._last: bool | None = None
        self.value = initially

    def add(self, succeeded: bool) -> bool:
        """Take one result; return whether a threshold has just been reached."""
        self._run = self._run + 1 if succeeded == self._last else 1
        self._last = succeeded
        threshold = self._success_threshold if succeeded else self._failure_threshold
        if self._run < threshold:
            return False
        self.value = succeeded
        return self._run == threshold


class Prober:
    """Runs the probes of one running container until stopped.

    Args:
        container: with at least one probe.
        sandbox: of its pod.
        report: called with name, ready, started, alive on every change.
        event: records ``Unhealthy`` and ``Killing`` events.
    """

    def __init__(
        self,
        container: Container,
        sandbox: Sandbox,
        report: Callable[[str, bool, bool, bool], None],
        event: Callable[[str, str, str], None],
    ) -> None:
        self._container = container
        self._sandbox = sandbox
        self._report = report
        self._event = event
        self._ready = probe_of(container, "readiness") is None
        self._started = probe_of(container, "startup") is None
        self._tasks: list[asyncio.Task[Any]] = [asyncio.create_task(self._run())]

    def stop(self) -> None:
        """End all probing."""
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        self._tell()
        startup = probe_of(self._container, "startup")
        if startup is not None:
            if not await self._follow("startup", startup):
                return
            self._started = True
            self._tell()
        for kind in ("readiness", "liveness"):
            probe = probe_of(self._container, kind)
            if probe is not None:
                self._tasks.append(asyncio.create_task(self._follow(kind, probe)))

    def _tell(self, *, alive: bool = True) -> None:
        self._report(self._container.name, self._ready and self._started, self._started, alive)

    async def _follow(self, kind: str, probe: dict[str, Any]) -> bool:
        """Probe until the container is to be killed (False) or has started (True, startup only)."""
        verdict = ProbeCounter(probe, initially=kind == "liveness")
        await asyncio.sleep(float(probe.get("initialDelaySeconds") or 0))
        while True:
            failure = await self._try(probe)
            if failure:
                name = kind.capitalize()
                self._event("Warning", "Unhealthy", f"{name} probe failed: {failure}")
            decided = verdict.add(not failure)
            if kind == "startup" and decided and verdict.value:
                return True
            if kind in ("startup", "liveness") and decided and not verdict.value:
                text = f"Container {self._container.name} failed {kind} probe, will be restarted"
                self._event("Normal", "Killing", text)
                self._tell(alive=False)
                return False
            if kind == "readiness" and decided and verdict.value != self._ready:
                self._ready = verdict.value
                self._tell()
            await asyncio.sleep(float(probe.get("periodSeconds") or 10))

    async def _try(self, probe: dict[str, Any]) -> str:
        """Run a probe once; return why it failed, empty when it succeeded."""
        timeout_s = float(probe.get("timeoutSeconds") or 1)
        try:
            async with asyncio.timeout(timeout_s):
                if "exec" in probe:
                    return await self._try_exec(probe["exec"].get("command", []))
                if "tcpSocket" in probe:
                    return await self._try_tcp(probe["tcpSocket"])
                if "httpGet" in probe:
                    return await self._try_http(probe["httpGet"])
        except TimeoutError:
            return f"no answer within {timeout_s:g} s"
        except (OSError, ShimError, ValueError) as error:
            return str(error)
        return f"probe kind `{next(iter(probe), '')}` is not served; use exec, tcpSocket or httpGet"

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

    async def _try_tcp(self, target: dict[str, Any]) -> str:
        _, writer = await self._connect(target)
        writer.close()
        return ""

    async def _try_http(self, target: dict[str, Any]) -> str:
        tls = ssl._create_unverified_context() if target.get("scheme") == "HTTPS" else None
        reader, writer = await self._connect(target, tls)
        try:
            host = target.get("host") or self._sandbox.record.address
            lines = [
                f"GET {target.get('path') or '/'} HTTP/1.0",
                f"Host: {host}",
                "User-Agent: kube-probe/1.35",
            ]
            lines += [f"{header['name']}: {header['value']}" for header in target.get("httpHeaders", [])]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            status = (await reader.readline()).split(b" ")
            code = int(status[1]) if len(status) > 1 else 0
            return "" if 200 <= code < 400 else f"HTTP probe failed with statuscode: {code}"
        finally:
            writer.close()

    async def _try_exec(self, command: list[str]) -> str:
        path = str(self._sandbox.context.paths.pod_socket(self._sandbox.record.uid))
        process = await run_inside(path, self._container.name, command)
        return "" if process == 0 else f"command exited with {process}"


async def run_inside(control_socket: str, container: str, command: list[str]) -> int:
    """Run a command in a container without streams; return its exit code. Cancelling kills it."""
    import json
    import os

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
