"""A stand-in for an OpenID Connect provider: it asks for no password, and others make its ID tokens.

Of OpenID Connect Core 1.0 it has what a proxy needs for the authorization code flow: a page on which a user
is chosen (3.1.2.1), codes that are good once (3.1.3.1), ID tokens for them (3.1.3.3), and the keys that sign
these; refresh tokens are good for any number of new ID tokens (12).
"""

from __future__ import annotations

import html
import http.server
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit


class Provider:
    """What the stand-in does.

    Args:
        users: names that may be chosen.
        make_token: returns an ID token of a user.
        keys: JSON Web Key Set of the key that signs them.
    """

    def __init__(self, users: list[str], make_token: Callable[[str], str], keys: str) -> None:
        self._users, self._make_token, self._keys = users, make_token, keys
        self._codes: dict[str, str] = {}
        self.refreshed: dict[str, str] = {}
        """The last ID token that each user got for a refresh token."""
        self.url = ""

    def choose(self, query: dict[str, list[str]]) -> str:
        """Return the page on which a user signs in."""
        links = []
        for user in self._users:
            code = secrets.token_urlsafe()
            self._codes[code] = user
            back = urlencode({"code": code, "state": query["state"][0]})
            target = html.escape(f"{query['redirect_uri'][0]}?{back}")
            links.append(f'<p><a href="{target}">{user}</a></p>')
        return f"<!doctype html><title>Stand-in</title><h1>Who are you?</h1>{''.join(links)}"

    def redeem(self, form: dict[str, list[str]]) -> dict[str, Any] | None:
        """Return the tokens for a code or a refresh token; None for a code that is used up."""
        if form.get("grant_type") == ["refresh_token"]:
            user = form["refresh_token"][0]
        elif not (user := self._codes.pop(form.get("code", [""])[0], "")):
            return None
        token = self._make_token(user)
        if "refresh_token" in form:
            self.refreshed[user] = token
        found = {"id_token": token, "access_token": "nothing", "token_type": "Bearer"}
        return {**found, "refresh_token": user, "expires_in": 3600}

    def answer(self, path: str, sent: str) -> tuple[int, str, str]:
        """Return status, type and text of an answer."""
        url = urlsplit(path)
        if url.path == "/authorize":
            return 200, "text/html", self.choose(parse_qs(url.query))
        if url.path == "/keys":
            return 200, "application/json", self._keys
        found = self.redeem(parse_qs(sent)) if url.path == "/token" else None
        return (200 if found else 400), "application/json", json.dumps(found or {"error": "invalid_grant"})


@contextmanager
def serving(provider: Provider) -> Iterator[Provider]:
    """Serve the stand-in on loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.tell("")

        def do_POST(self) -> None:
            self.tell(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def tell(self, sent: str) -> None:
            status, type_, text = provider.answer(self.path, sent)
            self.send_response(status)
            self.send_header("Content-Type", type_)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        provider.url = f"http://127.0.0.1:{server.server_port}"
        yield provider
        server.shutdown()
        thread.join()
