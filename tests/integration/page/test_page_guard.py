"""Who may see the page: every request that other sites or programs of the machine could send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from gangline.page.actions import Actions
from gangline.page.guard import Guard
from gangline.page.server import SIGNED_OUT, PageServer

SECRET = "s3cret"


class Page:
    """A page server without a cluster, and requests to it as a browser would send them."""

    def __init__(self, port: int, http: aiohttp.ClientSession) -> None:
        self.origin, self._http = f"http://127.0.0.1:{port}", http
        self.cookie = f"gangline_session_{port}"

    async def link(self, secret: str = SECRET) -> str | None:
        headers = {"Authorization": f"Bearer {secret}"}
        async with self._http.post(f"{self.origin}/link", headers=headers) as answer:
            return (await answer.json())["token"] if answer.status == 200 else None

    async def session(self) -> str:
        async with self._http.get(
            f"{self.origin}/enter", params={"token": await self.link() or ""}, allow_redirects=False
        ) as answer:
            return answer.cookies[self.cookie].value

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        async with self._http.get(self.origin + path, headers=headers, allow_redirects=False) as answer:
            await answer.read()
            return answer

    async def do(self, session: str, **headers: str) -> tuple[int, Any]:
        sent = {"Origin": self.origin, "X-Gangline": "1", "Cookie": f"{self.cookie}={session}"} | headers
        sent = {name: value for name, value in sent.items() if value}
        async with self._http.post(f"{self.origin}/do/nothing", json={}, headers=sent) as answer:
            return answer.status, await answer.json() if answer.status == 200 else None


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    client: Any = None  # no test here comes to a cluster
    server = PageServer(client, Actions(client, is_local=True), Guard(SECRET))
    port = await server.start()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        yield Page(port, http)
    await server.stop()


async def test_a_link_opens_one_session_and_is_in_no_address_after_it(page: Page) -> None:
    link = await page.link()
    first = await page.get(f"/enter?token={link}")
    again = await page.get(f"/enter?token={link}")

    assert (first.status, first.headers["Location"]) == (303, "/")
    cookie = first.cookies[page.cookie]
    assert cookie["httponly"] and cookie["samesite"] == "Strict"
    assert page.cookie not in again.cookies
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
        {"Cookie": f"{page.cookie}=made-up"},
        {"Content-Type": "text/plain"},
    ):
        assert (await page.do(session, **headers))[0] == 403, headers


async def test_a_socket_opens_for_the_page_and_a_session_alone(page: Page) -> None:
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await http.ws_connect(f"{page.origin}/live", headers={"Origin": "http://evil.example"})
        socket = await http.ws_connect(f"{page.origin}/live", headers={"Origin": page.origin})
        await socket.receive()
        assert socket.close_code == SIGNED_OUT


async def test_only_files_of_the_page_are_served(page: Page) -> None:
    for path in ("/static/../server.py", "/static/%2e%2e%2fserver.py", "/static/sources.sha256", "/static/"):
        assert (await page.get(path)).status == 404, path
