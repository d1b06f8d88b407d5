"""The page's web server: files, sockets for what is so and for shells, one path for what is to be done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog
from aiohttp import WSMsgType, web

from gangline.page.guard import PROTOCOL, Guard, Handler, is_own
from gangline.page.viewer import Viewer

if TYPE_CHECKING:
    from gangline.page.sessions import PageSession

BODY_BYTES_MAX: Final = 2 << 20
MESSAGE_BYTES_MAX: Final = 64 << 10
VIEWERS_MAX: Final = 64
SIGNED_OUT: Final = 4401
BUSY: Final = 4429
heartbeat_s: Final = 20.0
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


class Entrance(Protocol):
    """How a browser gets a session."""

    def word(self, request: web.Request) -> str:
        """Return what tells the page what to show who has none: `link`, `sign-in` or `refused`."""

    def routes(self) -> list[web.RouteDef]:
        """Return what the server answers for it."""

    async def session(self, request: web.Request) -> PageSession | None:
        """Return the session of a request."""

    async def stop(self) -> None:
        """Give back what is held for sessions."""


class PageServer:
    """Serves the page.

    Args:
        entrance: who may see it, and what.
        guard: which requests are the page's own.
    """

    def __init__(self, entrance: Entrance, guard: Guard) -> None:
        self._entrance, self._guard = entrance, guard
        self._files = {
            entry.name: (entry.read_bytes(), _TYPES[f".{entry.name.rpartition('.')[2]}"])
            for entry in files("gangline.page").joinpath("static").iterdir()
            if f".{entry.name.rpartition('.')[2]}" in _TYPES
        }
        self._viewers: set[Viewer] = set()
        self._runner: web.AppRunner | None = None

    @property
    def viewer_count(self) -> int:
        """How many pages are open."""
        return len(self._viewers)

    async def start(self, port: int = 0, address: str = "127.0.0.1") -> int:
        """Listen and return the port."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guard.check(request, handler)

        app = web.Application(middlewares=[guarded], client_max_size=BODY_BYTES_MAX)
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/static/{name}", self._static),
                web.get("/live", self._live),
                web.get("/shell", self._shell),
                web.post("/do/{action}", self._do),
                *self._entrance.routes(),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, port)
        await site.start()
        self._guard.port = self._runner.addresses[0][1]
        return self._guard.port

    async def stop(self) -> None:
        """Close every page's socket, and listen no more."""
        for viewer in list(self._viewers):
            await viewer.close()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._entrance.stop()

    async def _index(self, _request: web.Request) -> web.Response:
        body, type_ = self._files["index.html"]
        return web.Response(body=body, content_type=type_, charset="utf-8")

    async def _static(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found[0], content_type=found[1], charset="utf-8")

    async def _open(self, request: web.Request) -> tuple[web.WebSocketResponse, PageSession | None]:
        """Open a socket of the page; who has no session is told so, and the socket closed."""
        if not is_own(request):
            raise web.HTTPForbidden
        session = await self._entrance.session(request)
        socket = web.WebSocketResponse(
            heartbeat=heartbeat_s, max_msg_size=MESSAGE_BYTES_MAX, compress=False, protocols=(PROTOCOL,)
        )
        await socket.prepare(request)
        if session is None:
            await socket.close(code=SIGNED_OUT, message=self._entrance.word(request).encode())
        return socket, session

    async def _live(self, request: web.Request) -> web.WebSocketResponse:
        socket, session = await self._open(request)
        if session is None:
            return socket
        if len(self._viewers) >= VIEWERS_MAX:
            await socket.close(code=BUSY, message=b"too many pages are open")
            return socket
        viewer = Viewer(session, socket)
        self._viewers.add(viewer)
        session.workspace.viewers += 1
        sending = asyncio.create_task(self._show(viewer), name="page viewer")
        ending = asyncio.create_task(self._end(session, viewer), name="page viewer's end")
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    viewer.want(message.data)
        finally:
            self._viewers.discard(viewer)
            session.workspace.viewers -= 1
            for task in (sending, ending):
                task.cancel()
            await asyncio.gather(sending, ending, return_exceptions=True)
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

    async def _end(self, session: PageSession, viewer: Viewer) -> None:
        """Close a page whose rights have ended: it connects anew, and is told how to come in."""
        await session.workspace.over.wait()
        await viewer.close()

    async def _shell(self, request: web.Request) -> web.WebSocketResponse:
        from gangline.page.shell import serve_shell

        socket, session = await self._open(request)
        if session is not None:
            with suppress(ConnectionError):  # the page has gone
                await serve_shell(session.workspace, socket, dict(request.query))
                await socket.close()
        return socket

    async def _do(self, request: web.Request) -> web.Response:
        session = await self._entrance.session(request)
        if session is None:
            return web.Response(status=403, text="who asks is not known here\n")
        try:
            body = await request.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return web.json_response({"ok": False, "message": "the request is no JSON object"}, status=400)
        answer: dict[str, Any] = await session.workspace.actions.do(
            request.match_info["action"], body, session.surroundings
        )
        return web.json_response(answer)
