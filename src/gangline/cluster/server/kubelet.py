"""The kubelet endpoint of the nodes: what kube-apiserver asks a node for, logs and streams of its pods.

One endpoint serves all nodes of this machine. Only the API server's own certificate is let in; the
administrator's reads the pages.
Source: k8s.io/kubernetes/pkg/kubelet/server/server.go for paths and parameters.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from gangline.api.budgets import BODY
from gangline.api.core import Pod
from gangline.api.resources import PODS
from gangline.cluster.api_access import ADMIN, api_connection
from gangline.cluster.control_plane.identities import AGENT, KUBELET, KUBELET_CLIENT
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server import status_errors
from gangline.cluster.server.http.connections import (
    REMOTE,
    ClientConnection,
    ConnectionTable,
    HttpServer,
    Listener,
)
from gangline.cluster.server.http.fault_log import FaultLog
from gangline.cluster.server.http.request_context import RequestParameters
from gangline.cluster.server.server import BACKLOG, SHUTDOWN_TIMEOUT_S, tcp_socket
from gangline.cluster.server.status_errors import StatusError
from gangline.cluster.server.streams.commands import attach_to, exec_in
from gangline.cluster.server.streams.port_forward import forward_to
from gangline.cluster.server.verbs.logs import container_of, send_log
from gangline.kube.cache import Cache
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.kube.http_paths import PathAnswer

_NAMES = {"input": "stdin", "output": "stdout", "error": "stderr", "port": "ports"}
"""Parameters that a kubelet calls otherwise than the API does."""


class _CachedPod:
    """A pod whose log is followed, as the cache has it; see ``logs.Followed``."""

    def __init__(self, pods: Cache[Pod], changes: dict[str, set[asyncio.Event]], pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        self._pods, self._changes, self._pod = pods, changes, pod
        self._key = f"{meta['namespace']}/{meta['name']}"
        self._changed = asyncio.Event()
        changes[self._key].add(self._changed)
        self._is_first = True

    def current(self) -> dict[str, Any] | None:
        self._changed.clear()
        found = self._pods.raw(self._key)
        if self._is_first and found is None:  # the cache is a moment behind
            found = self._pod
        self._is_first = False
        return found if found and found["metadata"]["uid"] == self._pod["metadata"]["uid"] else None

    async def changed(self) -> None:
        await self._changed.wait()

    def close(self) -> None:
        self._changes[self._key].discard(self._changed)
        if not self._changes[self._key]:
            del self._changes[self._key]


class KubeletEndpoint:
    """Serves one cluster's nodes.

    Args:
        paths: of the cluster.
        port: where it listens, on loopback and the other addresses.
        addresses: further ones; they need not exist yet.
    """

    def __init__(self, paths: ClusterPaths, port: int, addresses: list[str]) -> None:
        self._paths, self._port, self._addresses = paths, port, addresses
        self._client = Client(api_connection(paths, AGENT), user_agent="gangline-kubelet")
        self._pods: Cache[Pod] = Cache(self._client, PODS, Pod, keep_raw=True)
        self._pods.on_change(self._on_pod)
        self._changes: dict[str, set[asyncio.Event]] = defaultdict(set)
        self.pages: dict[str, Callable[[], Awaitable[PathAnswer]]] = {}
        """Paths that the administrator's certificate may read as well, and what answers them."""
        self._faults = FaultLog()
        self._server = HttpServer(
            self._handle, idle_timeout_s=REMOTE.idle_timeout_s, body_bytes_max=BODY.bytes_max
        )

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            ClusterError: the port is taken.
        """
        table = ConnectionTable(REMOTE)
        context = self._tls()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pods.run(), name="pods")
                for address in ("127.0.0.1", *self._addresses):
                    sock = tcp_socket(address, self._port)
                    sock.setblocking(False)
                    sock.listen(BACKLOG)
                    listener = Listener(sock, self._server, table, context)
                    tasks.create_task(listener.run(), name="listener")
        finally:
            await self._server.shutdown(SHUTDOWN_TIMEOUT_S)
            await self._client.close()

    def _tls(self) -> ssl.SSLContext:
        folder = self._paths.certificates
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / f"{KUBELET}.crt", folder / f"{KUBELET}.key")
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        for event in self._changes.get(pod.metadata.key, ()) if pod is not None else ():
            event.set()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer; what goes wrong is told in plain words, which the API server puts into a ``Status``."""
        try:
            name, page = _name_of(request), self.pages.get(request.path)
            if name != KUBELET_CLIENT and (page is None or name != ADMIN):
                raise status_errors.unauthorized()
            if isinstance(request.protocol, ClientConnection):
                request.protocol.slot.known()
            if page is not None:
                found = await page()
                return web.Response(
                    status=found.status, body=found.body, headers={"Content-Type": found.content_type}
                )
            return await self._answer(request)
        except StatusError as failure:
            return web.Response(status=failure.code, text=failure.message)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001  # an answer in any case
            self._faults.failed(request.method, request.path, error)
            return web.Response(status=500, text=f"{type(error).__name__}: {str(error)[:512]}")

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        verb, *words = request.path.strip("/").split("/")
        if verb == "healthz":
            return web.Response(text="ok")
        if verb == "portForward" and len(words) in (2, 3):
            container = ""
        elif verb in ("containerLogs", "exec", "attach") and len(words) in (3, 4):
            container = words[-1]
        else:
            raise status_errors.no_such_path()
        pod = await self._pod(words[0], words[1])
        query = CIMultiDict((_NAMES.get(name, name), value) for name, value in request.query.items())
        query["container"] = container
        question = RequestParameters(request, query)
        if verb == "exec":
            return await exec_in(self._paths, pod, question)
        if verb == "attach":
            return await attach_to(self._paths, pod, question)
        if verb == "portForward":
            return await forward_to(self._paths, pod, question)
        name = container_of(pod, container)
        return await send_log(
            self._paths, question, pod, name, lambda: _CachedPod(self._pods, self._changes, pod)
        )

    async def _pod(self, namespace: str, name: str) -> dict[str, Any]:
        found = self._pods.raw(f"{namespace}/{name}")
        try:
            return found or await self._client.get(PODS, name, namespace)
        except NotFound:
            raise StatusError(404, "NotFound", f'pods "{name}" not found') from None


def _name_of(request: web.BaseRequest) -> str:
    """Return whose certificate, signed by the cluster, the other side has shown."""
    certificate = request.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return str(names[0]) if len(names) == 1 else ""
