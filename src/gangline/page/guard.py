"""Which requests are the page's own: refusal of what other sites and names of this machine send.

The page listens where every web site in the user's browser can reach it too. A request is taken only when it
names an address of the page as its host (against DNS rebinding) and, where it changes something or opens a
socket, comes from the page itself (against forged requests). Who asks is another question: `sessions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
HEADER: Final = "X-Gangline"
"""On every request that changes something: a form of another site cannot set it. Its value is a key."""
PROTOCOL: Final = "gangline"
"""Of a socket; behind it stands the key, as a browser sets no headers there."""
LINK_PATH: Final = "/link"
"""Asked for by the command line, which knows a secret and has no origin."""

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
    """Stands before every handler of one page server.

    Args:
        names: by which the page may be asked for, besides loopback.
        any_port: whether it is led to other ports than the one that it listens on.
    """

    def __init__(self, names: frozenset[str] = frozenset(), *, any_port: bool = False) -> None:
        self._names, self._any_port = LOOPBACK | names, any_port
        self.port = 0

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what does not come from the page, and tell the browser to load nothing of others."""
        if not self._is_called(request.headers.get("Host", "")):
            answer: web.StreamResponse = web.Response(status=421, text="this page has another address\n")
        elif request.method not in ("GET", "HEAD", "POST"):
            answer = web.Response(status=405)
        elif request.method == "POST" and request.path != LINK_PATH and not _may_change(request):
            answer = web.Response(status=403, text="this request does not come from the page\n")
        else:
            answer = await handler(request)
        if not answer.prepared:
            answer.headers.update(HEADERS)
        return answer

    def _is_called(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        if not port.isdigit():
            name, port = host, ""  # the port of the scheme
        return name in self._names and (self._any_port or port == str(self.port))


def is_own(request: web.Request) -> bool:
    """Whether the page itself sends a request, as its Origin says."""
    host = request.headers.get("Host", "")
    return request.headers.get("Origin", "") in (f"http://{host}", f"https://{host}")


def key_of(request: web.Request) -> str:
    """Return the key that a request of the page carries; empty where there is none.

    It is no cookie: cookies know no ports, and a web server that another user runs on this machine would get
    it. What the page keeps belongs to its own address and port.
    """
    offered = [word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    return offered[1] if len(offered) == 2 and offered[0] == PROTOCOL else request.headers.get(HEADER, "")


def _may_change(request: web.Request) -> bool:
    is_marked = bool(request.headers.get(HEADER)) and request.content_type == "application/json"
    return is_own(request) and is_marked
