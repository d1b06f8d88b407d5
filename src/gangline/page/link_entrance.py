"""The way in on one's own machine: a link that is good once, which the command line asks for by a secret."""

from __future__ import annotations

import hmac
import secrets
import time
from typing import Final

import msgspec
from aiohttp import web

from gangline.page.guard import LINK_PATH, key_of
from gangline.page.sessions import PageSession, SessionKeys, Surroundings, Workspace

LINK_LIFETIME_S: Final = 120.0
SESSION_LIFETIME_S: Final = 7 * 86_400.0


class LinkEntrance:
    """Lets in who has a link; all see the cluster with the rights of the one user.

    Args:
        secret: by which the command line asks for a link.
        workspace: what all see.
    """

    def __init__(self, secret: str, workspace: Workspace) -> None:
        self._secret, self._workspace = secret, workspace
        self._links: dict[str, tuple[float, Surroundings]] = {}
        self._sessions = SessionKeys[PageSession](SESSION_LIFETIME_S)

    def word(self, request: web.Request) -> str:
        """Return that a new link lets in."""
        return "link"

    def routes(self) -> list[web.RouteDef]:
        """Return what the server answers for it."""
        return [web.get("/enter", self._enter), web.post(LINK_PATH, self._link)]

    async def session(self, request: web.Request) -> PageSession | None:
        """Return the session of a request."""
        return self._sessions.find(key_of(request))

    async def stop(self) -> None:
        """Nothing is held."""

    async def _link(self, request: web.Request) -> web.Response:
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(shown.encode(), self._secret.encode()):
            return web.Response(status=403)
        try:
            around = msgspec.json.decode(await request.read() or b"{}", type=Surroundings)
        except msgspec.MsgspecError:
            return web.Response(status=400)
        now_s = time.monotonic()
        self._links = {link: one for link, one in self._links.items() if one[0] > now_s}
        link = secrets.token_urlsafe(32)
        self._links[link] = now_s + LINK_LIFETIME_S, around
        return web.json_response({"token": link})

    async def _enter(self, request: web.Request) -> web.Response:
        """Turn a link into a session; its key stands behind the `#`, which goes to no server."""
        until_s, around = self._links.pop(request.query.get("token", ""), (0.0, Surroundings()))
        place = "/"
        if until_s > time.monotonic():
            place += f"#key={self._sessions.add(PageSession(self._workspace, around))}"
        return web.Response(status=303, headers={"Location": place})
