"""Who may see the page: one-time links, sessions in a cookie, and refusal of what other sites send.

The page listens on loopback, which every web site in the user's browser can reach too. A request is taken
only when it names the page's own address as its host (against DNS rebinding), carries the session's cookie,
and, where it changes something or opens a socket, comes from the page itself (against forged requests).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

LINK_LIFETIME_S: Final = 120.0
SESSIONS_MAX: Final = 64
SESSION_LIFETIME_S: Final = 7 * 86_400.0
HEADER: Final = "X-Gangline"
"""On every request that changes something: a form of another site cannot set it."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """Links and sessions of one page server.

    Args:
        secret: by which the command line asks for a link.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._links: dict[str, float] = {}
        self._sessions: dict[str, float] = {}
        self.hosts: frozenset[str] = frozenset()
        self.cookie = "gangline_session"

    def listens_on(self, port: int) -> None:
        """Note the names by which the page may be asked for."""
        self.cookie = f"gangline_session_{port}"  # cookies know no ports: pages of two clusters are apart
        self.hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    def new_link(self, secret: str) -> str | None:
        """Return a token that opens one session; None for who does not know the secret."""
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            return None
        now = time.monotonic()
        self._links = {link: until for link, until in self._links.items() if until > now}
        link = secrets.token_urlsafe(32)
        self._links[link] = now + LINK_LIFETIME_S
        return link

    def enter(self, link: str) -> str | None:
        """Return a new session for a link that was not used yet, and use it up."""
        until = self._links.pop(link, 0.0)
        now = time.monotonic()
        if until <= now:
            return None
        self._sessions = {key: end for key, end in self._sessions.items() if end > now}
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = now + SESSION_LIFETIME_S
        return session

    def knows(self, request: web.Request) -> bool:
        """Whether a request carries a session's cookie."""
        return self._sessions.get(request.cookies.get(self.cookie, ""), 0.0) > time.monotonic()

    def is_own(self, request: web.Request) -> bool:
        """Whether the page itself sends a request, as its Origin says."""
        origin = request.headers.get("Origin", "")
        return origin in {f"http://{host}" for host in self.hosts}

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Stand before every handler: refuse what does not come from the page, and say so to the browser."""
        if request.headers.get("Host", "") not in self.hosts:
            answer: web.StreamResponse = web.Response(status=421, text="this page has another address\n")
        elif request.method not in ("GET", "HEAD", "POST"):
            answer = web.Response(status=405)
        elif request.method == "POST" and request.path != "/link" and not self._may_change(request):
            answer = web.Response(status=403, text="this request does not come from the page\n")
        else:
            answer = await handler(request)
        if not answer.prepared:
            answer.headers.update(HEADERS)
        return answer

    def _may_change(self, request: web.Request) -> bool:
        return (
            self.knows(request)
            and self.is_own(request)
            and request.headers.get(HEADER) == "1"
            and request.content_type == "application/json"
        )
