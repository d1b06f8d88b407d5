"""A stand-in for an API server: pods only, in memory, and it fails on request."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tls_server import TlsServer, serve_tls

from gangline.kube.client import Client
from gangline.kube.config import Connection

Object = dict[str, Any]


def status(code: int, reason: str, message: str = "refused", **details: Any) -> Object:
    """A metav1.Status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


class StandIn:
    """An API server that holds pods.

    Attributes:
        objects: the state, by key.
        requests: (method, path, query) of each request.
        answers: what the next requests are answered with, before anything else: a response factory each.
        connections: all that were made.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.answers: list[Callable[[], web.Response | None]] = []
        self.connections: set[object] = set()
        self.page_size_max = 10_000
        self.is_gone_in_stream = False
        self.version = 100
        self.watches_served = 0
        self._oldest = 0
        self._log: list[tuple[int, str, Object]] = []
        self._changed = asyncio.Condition()
        self._streams: dict[web.StreamResponse, str] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="gl-stand-in-")
        self.socket = str(Path(self._folder.name) / "api.sock")
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> StandIn:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.UnixSite(self._runner, self.socket).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end_watches("end")
        assert self._runner
        await self._runner.cleanup()
        self._folder.cleanup()

    def client(self, **options: Any) -> Client:
        return Client(Connection(server=f"unix://{self.socket}"), **options)

    # What tests do to it.

    async def put(self, name: str, *, labels: dict[str, str] | None = None) -> Object:
        """Create or change a pod."""
        self.version += 1
        key = f"default/{name}"
        old = self.objects.get(key)
        uid = old["metadata"]["uid"] if old else f"uid-{self.version}"
        obj = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": uid,
                "resourceVersion": str(self.version),
                "labels": labels or {},
            },
        }
        self.objects[key] = obj
        await self._append("MODIFIED" if old else "ADDED", obj)
        return obj

    async def remove(self, name: str) -> None:
        obj = self.objects.pop(f"default/{name}", None)
        if obj:
            self.version += 1
            last = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
            await self._append("DELETED", last)

    async def bookmark(self) -> None:
        self.version += 1
        meta = {"resourceVersion": str(self.version)}
        await self._append("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": meta})

    async def send_line(self, type_: str, obj: Object) -> None:
        """Send any event to all watches."""
        self.version += 1
        await self._append(type_, obj)

    async def compact(self) -> None:
        """Forget the past: watches from before now are too old, and running ones end with an error."""
        self._oldest = self.version
        await self.end_watches("gone")

    async def end_watches(self, how: str) -> None:
        """End all watches: ``end`` cleanly, ``cut`` the connection, ``gone`` with the error event."""
        async with self._changed:
            for stream in self._streams:
                self._streams[stream] = how
            self._changed.notify_all()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(condition)

    @property
    def watches(self) -> int:
        return len(self._streams)

    # Serving.

    async def _append(self, type_: str, obj: Object) -> None:
        async with self._changed:
            self._log.append((self.version, type_, obj))
            self._changed.notify_all()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query)))
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.read())
        self.connections.add(request.protocol)
        if self.answers:
            answer = self.answers.pop(0)()
            if answer is not None:
                return answer
            assert request.transport
            request.transport.abort()
            return web.Response()
        if request.method == "GET" and request.path in ("/api/v1/pods", "/api/v1/namespaces/default/pods"):
            return await (self._watch(request) if "watch" in request.query else self._list(request))
        key = f"default/{request.path.rpartition('/')[2]}"
        if request.method == "GET" and key in self.objects:
            return web.json_response(self.objects[key])
        return web.json_response(status(404, "NotFound", f"pods {key} not found", name=key), status=404)

    async def _list(self, request: web.Request) -> web.Response:
        token, limit = request.query.get("continue", ""), int(request.query.get("limit", 10_000))
        keys = sorted(key for key in self.objects if key > token)
        page = keys[: min(limit, self.page_size_max)]
        meta = {"resourceVersion": str(self.version)}
        if len(page) < len(keys):
            meta["continue"] = page[-1]
        bare = [{k: v for k, v in self.objects[key].items() if k in ("metadata",)} for key in page]
        return web.json_response({"kind": "PodList", "metadata": meta, "items": bare or None})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches_served += 1
        seen = int(request.query["resourceVersion"])
        gone = status(410, "Expired", "too old resource version")
        if seen < self._oldest and not self.is_gone_in_stream:
            return web.json_response(gone, status=410)
        stream = web.StreamResponse()
        await stream.prepare(request)
        self._streams[stream] = "gone" if seen < self._oldest else ""
        async with self._changed:
            self._changed.notify_all()
        try:
            while True:
                async with self._changed:
                    await self._changed.wait_for(partial(self._has_work, stream, seen))
                how, batch = self._streams[stream], self._after(seen)
                if how == "gone":
                    await stream.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                    return stream
                if how == "cut":
                    # Half of an event, and then nothing more.
                    await stream.write(b'{"type": "MODIFIED", "object": {"metadata": {"na')
                    assert request.transport
                    request.transport.abort()
                    return stream
                if how == "end":
                    return stream
                for version, type_, obj in batch:
                    seen = version
                    await stream.write(json.dumps({"type": type_, "object": obj}).encode() + b"\n")
        except ConnectionError:
            return stream
        finally:
            del self._streams[stream]

    def _has_work(self, stream: web.StreamResponse, seen: int) -> bool:
        return bool(self._streams[stream] or self._after(seen))

    def _after(self, version: int) -> list[tuple[int, str, Object]]:
        return [entry for entry in self._log if entry[0] > version]


@pytest.fixture
async def tls(tmp_path: Path) -> AsyncIterator[TlsServer]:
    async with serve_tls(tmp_path) as server:
        yield server


@pytest.fixture
async def server() -> AsyncIterator[StandIn]:
    async with StandIn() as stand_in:
        yield stand_in


@pytest.fixture(scope="session")
def stand_in() -> type[StandIn]:
    return StandIn


@pytest.fixture(scope="session")
def make_status() -> Callable[..., Object]:
    return status
