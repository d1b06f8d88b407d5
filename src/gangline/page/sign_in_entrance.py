"""The way in where many users come: each shows a token of the cluster, and sees it with the rights of that.

A token comes from the form of the page, or with every request from a proxy that has signed the user in
(``Authorization: Bearer``). It lies in the memory of this process alone, while its session lasts.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from gangline.errors import GanglineError
from gangline.kube.errors import Unauthorized
from gangline.page.guard import LOOPBACK, key_of
from gangline.page.rooms import Rooms, Visitor
from gangline.page.sessions import PageSession, SessionKeys, Surroundings

SESSION_LIFETIME_S: Final = 12 * 3_600.0
TOKEN_CHARS_MAX: Final = 16_384
NAMESPACE_CHARS_MAX: Final = 63


class SignIn(msgspec.Struct, frozen=True):
    """What the form sends.

    Attributes:
        token: empty keeps the one by which the browser is known already.
        namespace: of which jobs are shown to who may not see all; empty for that of a service account.
    """

    token: str = ""
    namespace: str = ""


class SignInEntrance:
    """Lets in who shows a token that the cluster takes.

    Args:
        rooms: what each token sees.
    """

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._sessions = SessionKeys[Visitor](SESSION_LIFETIME_S)
        rooms.on_end = self._forget

    def word(self, request: web.Request) -> str:
        """Return that a token lets in, or that the proxy's is none that the cluster takes."""
        return "refused" if _given(request) else "sign-in"

    def routes(self) -> list[web.RouteDef]:
        """Return what the server answers for it."""
        return [web.post("/sign-in", self._sign_in), web.post("/sign-out", self._sign_out)]

    async def session(self, request: web.Request) -> PageSession | None:
        """Return the session of a request; a proxy's token counts for more than the page's key.

        Raises:
            HTTPServiceUnavailable: the cluster does not answer.
        """
        visitor = self._visitor(request)
        if not visitor.token:
            return None
        try:
            return PageSession(await self._rooms.enter(visitor), Surroundings())
        except Unauthorized:
            return None
        except GanglineError as error:
            raise web.HTTPServiceUnavailable(text=f"{error.message}\n") from error

    async def stop(self) -> None:
        """Forget every token."""
        await self._rooms.stop()

    def _visitor(self, request: web.Request) -> Visitor:
        known = self._sessions.find(key_of(request)) or Visitor()
        return Visitor(_given(request) or known.token, known.namespace)

    async def _sign_in(self, request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await request.read(), type=SignIn)
        except msgspec.MsgspecError:
            return web.Response(status=400)
        given = _given(request)
        visitor = Visitor(
            given or asked.token.strip() or self._visitor(request).token, asked.namespace.strip()
        )
        if problem := _problem(request, visitor):
            return _refusal(problem)
        try:
            workspace = await self._rooms.enter(visitor)
        except Unauthorized:
            return _refusal("The cluster does not take this token: it is wrong, or its time is over.")
        except GanglineError as error:
            return _refusal(error.message)
        # A proxy renews its token, and shows it each time.
        key = self._sessions.add(Visitor("" if given else visitor.token, visitor.namespace))
        self._leave(key_of(request))
        return web.json_response({"ok": True, "message": f"Signed in as {workspace.user}.", "key": key})

    async def _sign_out(self, request: web.Request) -> web.Response:
        self._leave(key_of(request))
        return web.json_response({"ok": True, "message": "Signed out."})

    def _leave(self, key: str) -> None:
        """Let a browser out, and end the rights of its token unless another browser has it too."""
        visitor = self._sessions.find(key)
        self._sessions.drop(lambda one, _: one == key)
        if visitor is not None and not self._sessions.has(visitor):
            self._rooms.end(visitor)

    def _forget(self, visitor: Visitor) -> None:
        self._sessions.drop(lambda _, one: one == visitor)


def _given(request: web.Request) -> str:
    """Return the token that a proxy sends; empty where there is none, and for other schemes."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and _is_token(token) else ""


def _is_token(text: str) -> bool:
    is_word = text.isascii() and text.isprintable() and " " not in text
    return is_word and 0 < len(text) <= TOKEN_CHARS_MAX


def _problem(request: web.Request, visitor: Visitor) -> str:
    """Return why a token is not even shown to the cluster; empty where it may be."""
    name = request.headers["Host"].rpartition(":")[0] or request.headers["Host"]
    if name not in LOOPBACK and not request.headers.get("Origin", "").startswith("https://"):
        return "This page was not opened by https: the token would go over the network for everybody to read."
    if not _is_token(visitor.token):
        return f"A token is a word of at most {TOKEN_CHARS_MAX} letters, digits and signs."
    namespace = visitor.namespace.replace("-", "")
    if len(visitor.namespace) > NAMESPACE_CHARS_MAX or (namespace and not namespace.isalnum()):
        return f"`{visitor.namespace}` is no name of a namespace."
    return ""


def _refusal(message: str) -> web.Response:
    return web.json_response({"ok": False, "message": message})
