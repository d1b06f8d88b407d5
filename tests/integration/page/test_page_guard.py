"""Who may see the page: every request that other sites or programs of the machine could send."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from gangline.page.actions import Actions
from gangline.page.guard import Guard
from gangline.page.link_entrance import LinkEntrance
from gangline.page.server import SIGNED_OUT, PageServer
from gangline.page.sessions import Workspace

SECRET = "s3cret"


class Page:
    """A page server without a cluster, and requests to it as a browser would send them."""

    def __init__(self, port: int, http: aiohttp.ClientSession) -> None:
        self.origin, self._http = f"http://127.0.0.1:{port}", http

    async def link(self, secret: str = SECRET) -> str | None:
        headers = {"Authorization": f"Bearer {secret}"}
        async with self._http.post(f"{self.origin}/link", headers=headers) as answer:
            return (await answer.json())["token"] if answer.status == 200 else None

    async def session(self) -> str:
        place = (await self.get(f"/enter?token={await self.link()}")).headers["Location"]
        return place.removeprefix("/#key=")

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        async with self._http.get(self.origin + path, headers=headers, allow_redirects=False) as answer:
            await answer.read()
            return answer

    async def do(self, session: str, **headers: str) -> tuple[int, Any]:
        sent = {"Origin": self.origin, "X-Gangline": session} | headers
        sent = {name: value for name, value in sent.items() if value}
        async with self._http.post(f"{self.origin}/do/nothing", json={}, headers=sent) as answer:
            return answer.status, await answer.json() if answer.status == 200 else None


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    client: Any = None  # no test here comes to a cluster
    workspace = Workspace(client, client, Actions(client, is_local=True))
    server = PageServer(LinkEntrance(SECRET, workspace), Guard())
    port = await server.start()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        yield Page(port, http)
    await server.stop()


async def test_a_link_opens_one_session_and_no_server_is_told_its_key(page: Page) -> None:
    link = await page.link()
    first = await page.get(f"/enter?token={link}")
    again = await page.get(f"/enter?token={link}")

    assert first.status == 303
    assert re.fullmatch(r"/#key=[\w-]{43}", first.headers["Location"])  # a browser sends nothing behind the #
    assert again.headers["Location"] == "/"
    assert not first.cookies  # cookies go to every port of the machine
    assert await page.link("another secret") is None


async def test_every_answer_forbids_scripts_of_others_and_frames(page: Page) -> None:
    for path in ("/", "/static/app.js", "/enter"):
        headers = (await page.get(path)).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1.evil.example"])
async def test_another_name_of_this_machine_is_refused(page: Page, host: str) -> None:
    """DNS rebinding: a site has its own name lead to loopback, and the browser sends that name."""
    assert (await page.get("/", Host=host)).status == 421


async def test_what_changes_something_must_come_from_the_page_itself(page: Page) -> None:
    session = await page.session()

    assert (await page.do(session))[0] == 200
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": ""},
        {"Origin": "null"},
        {"X-Gangline": ""},
        {"X-Gangline": "made-up"},
        {"Content-Type": "text/plain"},
    ):
        assert (await page.do(session, **headers))[0] == 403, headers


@pytest.mark.parametrize("path", ["/live", "/shell?job=mpijob/default/a"])
async def test_a_socket_opens_for_the_page_and_a_session_alone(page: Page, path: str) -> None:
    key = await page.session()
    async with aiohttp.ClientSession() as http:
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await http.ws_connect(
                    page.origin + path, headers={"Origin": origin}, protocols=("gangline", key)
                )
        for protocols in (("gangline",), ("gangline", "made-up"), (key,)):
            socket = await http.ws_connect(
                page.origin + path, headers={"Origin": page.origin}, protocols=protocols
            )
            await socket.receive()
            assert socket.close_code == SIGNED_OUT


async def test_only_files_of_the_page_are_served(page: Page) -> None:
    for path in ("/static/../server.py", "/static/%2e%2e%2fserver.py", "/static/sources.sha256", "/static/"):
        assert (await page.get(path)).status == 404, path
