"""Users with tokens of their own at one page server: each sees and does what the cluster lets that token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from gangline.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    JOBS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from gangline.cli.serve.page_server import open_workspace, read_server
from gangline.page import rooms
from gangline.page.guard import Guard
from gangline.page.rooms import Rooms
from gangline.page.server import SIGNED_OUT, PageServer
from gangline.page.sign_in_entrance import SignInEntrance

LIMIT_S = 20.0
NAME = "gangline.example.com"


class Page:
    """Requests to a page server, as a browser would send them."""

    def __init__(self, port: int, http: aiohttp.ClientSession) -> None:
        self.origin, self._http = f"http://127.0.0.1:{port}", http

    async def post(self, path: str, body: Any, key: str = "-", **headers: str) -> tuple[int, Any]:
        sent = {"Origin": self.origin, "X-Gangline": key} | headers
        async with self._http.post(f"{self.origin}{path}", json=body, headers=sent) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def sign_in(self, token: str, namespace: str = "") -> str:
        status, answer = await self.post("/sign-in", {"token": token, "namespace": namespace})
        assert status == 200 and answer["ok"], answer
        assert token not in json.dumps(answer)
        return str(answer["key"])

    async def open(self, key: str = "", **headers: str) -> aiohttp.ClientWebSocketResponse:
        protocols = ("gangline", key) if key else ("gangline",)
        sent = {"Origin": self.origin} | headers
        socket = await self._http.ws_connect(f"{self.origin}/live", headers=sent, protocols=protocols)
        await socket.send_str('{"jobs": {"first": 0, "count": 50}}')
        return socket

    async def told(self, socket: aiohttp.ClientWebSocketResponse, seen: Callable[[Any], bool]) -> Any:
        """Return the first message of which something is true."""
        async with asyncio.timeout(LIMIT_S):
            async for message in socket:
                if seen(value := json.loads(message.data)):
                    return value
        raise AssertionError(f"the socket was closed with {socket.close_code}")

    async def looks(self, key: str = "", **headers: str) -> tuple[Any, set[str]]:
        """Return what the cluster is to who sees job ``theirs``, and the names of all jobs that are seen."""
        socket, known = await self.open(key, **headers), dict[str, Any]()

        def seen(value: Any) -> bool:
            known.update(value)
            is_known = known.get("cluster", {}).get("counts")
            return bool(is_known) and "theirs" in names()

        def names() -> set[str]:
            return {row["name"] for row in known.get("jobs", {}).get("rows", [])}

        await self.told(socket, seen)
        await socket.close()
        return known["cluster"], names()


@pytest.fixture
async def page(api: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Page]:
    monkeypatch.setattr(rooms, "check_s", 0.1)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    server = read_server(api.kubeconfig, None)
    assert (server.token, server.client_cert, server.exec_plugin) == (None, None, None)
    entrance = SignInEntrance(Rooms(lambda visitor: open_workspace(server, visitor)))
    served = PageServer(entrance, Guard(frozenset({NAME}), any_port=True))
    port = await served.start()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        yield Page(port, http)
    await served.stop()


@pytest.fixture
async def tokens(api: Any) -> AsyncIterator[dict[str, str]]:
    """One user who may do all in the test's namespace, and one who may look everywhere."""
    space, look, everything = api.namespace, ["get", "list", "watch"], ["*"]
    wide = f"{space}-guest"
    async with api.client() as client:
        found = {}
        for name, verbs, kinds in (
            ("dev", everything, (ROLES, ROLE_BINDINGS)),
            ("guest", look, (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)),
        ):
            metadata = {"name": name, "namespace": space}
            await client.create(SERVICE_ACCOUNTS, _object(SERVICE_ACCOUNTS, metadata))
            own = metadata if kinds[0].namespaced else {"name": wide}
            rule = {"apiGroups": everything, "resources": everything, "verbs": verbs}
            await client.create(kinds[0], _object(kinds[0], own, rules=[rule]))
            role = {"apiGroup": ROLES.group, "kind": kinds[0].kind, "name": own["name"]}
            subject = {"kind": "ServiceAccount", **metadata}
            await client.create(kinds[1], _object(kinds[1], own, roleRef=role, subjects=[subject]))
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            made = await client.create_subresource(SERVICE_ACCOUNTS, name, "token", request, space)
            found[name] = made["status"]["token"]
        await client.create(JOBS, _job("theirs", space))
        yield found
        await client.delete(CLUSTER_ROLE_BINDINGS, wide)
        await client.delete(CLUSTER_ROLES, wide)


def _object(kind: Resource, metadata: dict[str, str], **rest: Any) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}


def _job(name: str, namespace: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "none", "command": ["true"]}]}
    spec = {"suspend": True, "template": {"spec": pod}}
    return _object(JOBS, {"name": name, "namespace": namespace}, spec=spec)


async def test_each_user_sees_and_does_what_the_token_may(api: Any, page: Page, tokens: Any) -> None:
    dev, guest = await page.sign_in(tokens["dev"]), await page.sign_in(tokens["guest"])
    key = f"job/{api.namespace}/theirs"

    (narrow, names), (wide, _) = await page.looks(dev), await page.looks(guest)
    assert names == {"theirs"}
    assert narrow["user"] == f"system:serviceaccount:{api.namespace}:dev"
    assert narrow["namespace"] == api.namespace  # that of the account
    assert f"jobs and pods outside of namespace {api.namespace}" in narrow["forbidden"]
    assert wide["forbidden"] == []
    _, refused = await page.post("/do/delete", {"key": key}, guest)
    assert not refused["ok"] and "cannot delete resource" in refused["message"]
    _, done = await page.post("/do/delete", {"key": key}, dev)
    assert done["ok"], done
    status, _ = await page.post("/do/start", {"program": "true"}, dev)
    assert status == 200  # and no program: the server's machine is nobody's


async def test_who_shows_no_good_token_sees_a_form_and_changes_nothing(page: Page, tokens: Any) -> None:
    for key in ("", "made-up", tokens["dev"]):
        socket = await page.open(key)
        closed = await socket.receive()
        assert (socket.close_code, closed.extra) == (SIGNED_OUT, "sign-in")
        assert (await page.post("/do/delete", {"key": "job/a/b"}, key or "-"))[0] == 403
    for token in ("", "wrong", "two words", "t\u00f6ken", "x" * 20_000, "a\r\nHost: evil"):
        status, answer = await page.post("/sign-in", {"token": token})
        assert status == 200 and not answer["ok"] and "key" not in answer, token
    assert (await page.post("/sign-in", {"token": tokens["dev"], "namespace": "../x"}))[1]["ok"] is False


async def test_a_sign_in_comes_from_the_page_itself_and_over_no_open_network(page: Page, tokens: Any) -> None:
    body = {"token": tokens["dev"]}
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Content-Type": "text/plain"}):
        assert (await page.post("/sign-in", body, **headers))[0] == 403, headers
    assert (await page.post("/sign-in", body, key=""))[0] == 403
    assert (await page.post("/sign-in", body, Host="evil.example"))[0] == 421
    _, answer = await page.post("/sign-in", body, Host=NAME, Origin=f"http://{NAME}")
    assert not answer["ok"] and "https" in answer["message"]
    _, answer = await page.post("/sign-in", body, Host=NAME, Origin=f"https://{NAME}")
    assert answer["ok"]


async def test_a_proxys_token_counts_with_every_request(page: Page, tokens: Any) -> None:
    proxied = {"Authorization": f"Bearer {tokens['guest']}"}
    assert "guest" in (await page.looks(**proxied))[0]["user"]
    own = await page.sign_in(tokens["dev"])
    assert "guest" in (await page.looks(own, **proxied))[0]["user"]
    _, answer = await page.post("/sign-in", {"namespace": "kube-system"}, **proxied)
    assert answer["ok"]
    socket = await page.open(answer["key"], **proxied)
    await page.told(socket, lambda value: value.get("cluster", {}).get("namespace") == "kube-system")
    socket = await page.open(answer["key"])  # the key alone is worth nothing
    await socket.receive()
    assert socket.close_code == SIGNED_OUT
    for header in ("Bearer wrong", "Basic Z3Vlc3Q6", "Bearer"):
        socket = await page.open(Authorization=header)
        await socket.receive()
        assert socket.close_code == SIGNED_OUT, header


async def test_signing_out_closes_what_is_open_and_forgets_the_token(page: Page, tokens: Any) -> None:
    first, second = await page.sign_in(tokens["dev"]), await page.sign_in(tokens["dev"])
    socket = await page.open(second)
    await page.post("/sign-out", {}, first)
    await page.told(socket, lambda value: "jobs" in value)  # another browser's
    await page.post("/sign-out", {}, second)
    with pytest.raises(AssertionError):
        await page.told(socket, lambda _: False)
    assert (await page.post("/do/delete", {"key": "job/a/b"}, second))[0] == 403


async def test_a_token_that_the_cluster_takes_no_more_ends_its_session(
    api: Any, page: Page, tokens: Any
) -> None:
    key = await page.sign_in(tokens["dev"])
    socket = await page.open(key)
    await page.told(socket, lambda value: "jobs" in value)
    async with api.client() as client:
        await client.delete(SERVICE_ACCOUNTS, "dev", api.namespace)

    with pytest.raises(AssertionError):
        await page.told(socket, lambda _: False)
    assert (await page.post("/do/delete", {"key": "job/a/b"}, key))[0] == 403
