"""The page's web server: files, one socket for what is so, and one path for what is to be done."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import structlog
from aiohttp import WSMsgType, web

from gangline.page.guard import SESSION_LIFETIME_S, Guard, Handler
from gangline.page.scene import Scene
from gangline.page.viewer import Viewer

if TYPE_CHECKING:
    from gangline.page.actions import Actions

BODY_BYTES_MAX: Final = 2 << 20
MESSAGE_BYTES_MAX: Final = 64 << 10
VIEWERS_MAX: Final = 64
SIGNED_OUT: Final = 4401
BUSY: Final = 4429
heartbeat_s: Final = 20.0
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


class PageServer:
    """Serves one cluster's page on loopback.

    Args:
        scene: what is so, of the cluster.
        actions: what can be done.
        guard: who may see it.
    """

    def __init__(self, scene: Scene, actions: Actions, guard: Guard) -> None:
        self._scene, self._actions, self._guard = scene, actions, guard
        self._files = {
            entry.name: (entry.read_bytes(), _TYPES[f".{entry.name.rpartition('.')[2]}"])
            for entry in files("gangline.page").joinpath("static").iterdir()
            if f".{entry.name.rpartition('.')[2]}" in _TYPES
        }
        self._viewers: set[Viewer] = set()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def viewer_count(self) -> int:
        """How many pages are open."""
        return len(self._viewers)

    async def start(self, port: int = 0) -> int:
        """Listen on loopback and return the port."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guard.check(request, handler)

        app = web.Application(middlewares=[guarded], client_max_size=BODY_BYTES_MAX)
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/static/{name}", self._static),
                web.get("/enter", self._enter),
                web.post("/link", self._link),
                web.get("/live", self._live),
                web.post("/do/{action}", self._do),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self._guard.listens_on(self.port)
        return self.port

    async def stop(self) -> None:
        """Close every page's socket, and listen no more."""
        for viewer in list(self._viewers):
            await viewer.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _index(self, _request: web.Request) -> web.Response:
        body, type_ = self._files["index.html"]
        return web.Response(body=body, content_type=type_, charset="utf-8")

    async def _static(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found[0], content_type=found[1], charset="utf-8")

    async def _enter(self, request: web.Request) -> web.Response:
        """Turn a link into a session; the token is in no address after this."""
        session = self._guard.enter(request.query.get("token", ""))
        answer = web.Response(status=303, headers={"Location": "/"})
        if session is not None:
            answer.set_cookie(
                self._guard.cookie,
                session,
                max_age=int(SESSION_LIFETIME_S),
                httponly=True,
                samesite="Strict",
                path="/",
            )
        return answer

    async def _link(self, request: web.Request) -> web.Response:
        link = self._guard.new_link(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if link is None:
            return web.Response(status=403)
        return web.json_response({"token": link})

    async def _live(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=heartbeat_s, max_msg_size=MESSAGE_BYTES_MAX, compress=False)
        if not self._guard.is_own(request):
            raise web.HTTPForbidden
        await socket.prepare(request)
        if not self._guard.knows(request):
            await socket.close(code=SIGNED_OUT)
            return socket
        if len(self._viewers) >= VIEWERS_MAX:
            await socket.close(code=BUSY, message=b"too many pages are open")
            return socket
        viewer = Viewer(self._scene, socket)
        self._viewers.add(viewer)
        sending = asyncio.create_task(self._show(viewer), name="page viewer")
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    viewer.want(message.data)
        finally:
            self._viewers.discard(viewer)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            viewer.leave()
        return socket

    async def _show(self, viewer: Viewer) -> None:
        """Run a viewer; one that fails closes its socket, so that the page connects anew."""
        try:
            await viewer.run()
        except ConnectionError:
            pass
        except Exception:  # noqa: BLE001 - whatever it is, a page that stands still is worse
            structlog.get_logger().exception("a page is not told any more")
            await viewer.close()

    async def _do(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return web.json_response({"ok": False, "message": "the request is no JSON object"}, status=400)
        answer: dict[str, Any] = await self._actions.do(request.match_info["action"], body)
        return web.json_response(answer)
