"""One request cannot stop the server: each of these once crashed it, froze it, or filled memory or disk."""

import asyncio
import gzip
import json
import ssl
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from gangline.cluster.server.http import connections, load, request_context
from gangline.cluster.server.server import ApiServer
from gangline.cluster.server.verbs import watching

Api = Any
MAPS = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
YAML = "application/yaml"
MERGE = "application/merge-patch+json"
SOON_S = 20.0
"""Far more than any of these takes here, far less than each once took."""


def alias_bomb(item: str) -> bytes:
    names = "abcdefghi"
    lines = [f"{b}: &{b} {item % ','.join([f'*{a}'] * 9)}" for a, b in pairwise(names)]
    return "\n".join(["a: &a {k: 1}", *lines]).encode()


def thing_crd(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


async def local(api: Api, raw: bytes) -> bytes:
    """Send bytes to the Unix socket and return everything that comes back until the server closes."""
    reader, writer = await asyncio.open_unix_connection(str(api.server.paths.api_socket))
    return await talk(reader, writer, raw)


async def remote(server: ApiServer, raw: bytes) -> bytes:
    """Send bytes to the TCP port and return everything that comes back until the server closes."""
    return await talk(*await connect(server), raw)


async def connect(server: ApiServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(cafile=str(server.paths.certificates / "ca.crt"))
    return await asyncio.open_connection("127.0.0.1", server.port, ssl=context)


async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, raw: bytes) -> bytes:
    try:
        writer.write(raw)
        async with asyncio.timeout(SOON_S):
            return await reader.read()
    finally:
        writer.close()


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    head = [f"{line} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode("utf-8", "surrogateescape") + body


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


def message_of(answer: bytes) -> str:
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["message"])


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"[" * 40_000, 400, "nested more than 400 deep"),
        (b"a: " + b"{b: " * 40_000, 400, "nested more than 400 deep at body:1:"),
        (b"- " * 40_000, 400, "nested more than 400 deep"),
        (alias_bomb("[%s]"), 400, "more than 400,000 values, aliases counted"),
        (alias_bomb("{<<: [%s]}"), 400, "more than 400,000 values, aliases counted"),
        (b"a: &a " + b"x" * 9000 + b"\nb: [" + b"*a," * 999 + b"]", 400, "longer than 3,145,728 bytes"),
        (b"a: " + b"x" * (3 << 20), 413, "limit is 3145728, found 3145731"),
        (b"a: 1\n---\na: 2\n", 400, "more than one document"),
        (b"a: !!python/object:os.system x", 400, "is not allowed in a manifest at body:1:4"),
    ],
)
async def test_yaml_that_asks_for_too_much_is_refused(api: Api, body: bytes, code: int, words: str) -> None:
    begin = time.monotonic()

    status, answer = await api.request("POST", MAPS, body, type_=YAML)

    assert (status, answer["kind"]) == (code, "Status")
    assert words in answer["message"]
    assert time.monotonic() - begin < SOON_S
    await api.get("/healthz")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" * 40_000, "nested more than 400 deep"),
        (b'{"a":[' + b"0," * 500_000 + b"0]}", "more than 400,000 values"),
        (b'{"a":"\xff"}', "utf-8"),
        (b'{"a":' + b"1" * 5000 + b"}", "out of range"),
        (b'{"a":"\\ud800"}', "unrecognized"),
    ],
)
async def test_json_that_asks_for_too_much_is_refused(api: Api, body: bytes, words: str) -> None:
    status, answer = await api.request("POST", MAPS, body)

    assert (status, answer["reason"]) == (400, "BadRequest")
    assert words in answer["message"]


async def test_a_json_patch_that_copies_its_copies_is_refused(api: Api) -> None:
    await api.create(MAPS, {"metadata": {"name": "c"}, "data": {"k": "v" * 100}})
    copies = [{"op": "copy", "from": "/data", "path": f"/data/{n}"} for n in range(26)]

    status, answer = await api.request("PATCH", f"{MAPS}/c", copies, type_=api.JSON_PATCH)

    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")
    assert "copy more than 3145728 bytes" in answer["message"]


async def test_a_json_patch_cannot_nest_deeper_than_a_body(api: Api) -> None:
    await api.create(MAPS, {"metadata": {"name": "c"}, "data": {}})
    deeper = [{"op": "add", "path": "/data" + "/a" * n, "value": {}} for n in range(1, 450)]

    status, answer = await api.request("PATCH", f"{MAPS}/c", deeper, type_=api.JSON_PATCH)

    assert (status, "nests values more than 400 deep" in answer["message"]) == (422, True)


async def test_a_json_patch_of_many_operations_on_a_long_list_is_quick(api: Api) -> None:
    await api.create(CRDS, thing_crd(l={"type": "array", "items": {"type": "integer"}}))
    path = "/apis/example.com/v1/namespaces/default/things"
    await api.create(path, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"},
                            "spec": {"l": list(range(50_000))}})  # fmt: skip
    begin = time.monotonic()

    await api.patch(f"{path}/t", [{"op": "add", "path": "/spec/l/0", "value": 1}] * 9_999, api.JSON_PATCH)

    assert time.monotonic() - begin < SOON_S


async def test_an_object_cannot_grow_by_patches_for_ever(api: Api) -> None:
    await api.create(CRDS, thing_crd(m={"type": "object", "additionalProperties": {"type": "string"}}))
    path = "/apis/example.com/v1/namespaces/default/things"
    await api.create(path, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}})
    for n in range(3):
        await api.patch(f"{path}/t", {"spec": {"m": {f"k{n}": "v" * 900_000}}})

    more = {"spec": {"m": {"k": "v" * 900_000}}}
    status, answer = await api.request("PATCH", f"{path}/t", more, type_=MERGE)

    assert (status, "an object has at most 3145728 bytes" in answer["message"]) == (413, True)
    await api.delete(f"{path}/t")


async def test_a_strategic_patch_of_a_long_list_is_quick(api: Api) -> None:
    owners = [{"apiVersion": "v1", "kind": "A", "name": f"o{n}", "uid": str(n)} for n in range(15_000)]
    await api.create(MAPS, {"metadata": {"name": "c", "ownerReferences": owners}})
    begin = time.monotonic()

    await api.patch(f"{MAPS}/c", {"metadata": {"ownerReferences": owners[::-1]}}, api.STRATEGIC)

    assert time.monotonic() - begin < SOON_S


async def test_a_pattern_does_not_backtrack(api: Api) -> None:
    await api.create(CRDS, thing_crd(s={"type": "string", "pattern": "^(a+)+$"}))
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    begin = time.monotonic()

    status, answer = await api.request(
        "POST", "/apis/example.com/v1/namespaces/default/things", thing | {"spec": {"s": "a" * 60 + "!"}}
    )

    assert (status, "should match '^(a+)+$'" in answer["message"]) == (422, True)
    assert time.monotonic() - begin < SOON_S


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "[", "((a{1000}){1000})"])
async def test_a_pattern_that_kubernetes_does_not_read_is_refused(api: Api, pattern: str) -> None:
    status, answer = await api.request("POST", CRDS, thing_crd(s={"type": "string", "pattern": pattern}))

    assert (status, answer["details"]["causes"][0]["field"]) == (
        422,
        "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[s].pattern",
    )
    assert "must be a valid regular expression" in answer["message"]


async def test_a_compressed_body_is_not_unpacked(api: Api) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    raw = request(f"POST {MAPS}", "Content-Encoding: gzip", body=bomb[: 2 << 20])
    begin = time.monotonic()

    with_token, without = await local(api, raw), await remote(api.server, raw)

    assert (status_of(with_token), status_of(without)) == (415, 401)
    assert "Content-Encoding (gzip)" in message_of(with_token)
    assert time.monotonic() - begin < SOON_S


@pytest.mark.parametrize("token", ["\udcff", "é", "gl.é.é", "gl.\udcff.00"])
async def test_a_token_that_is_no_text_is_refused_without_a_line(
    api_server: ApiServer, token: str, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = await remote(api_server, request("GET /api/v1/pods", f"Authorization: Bearer {token}"))

    assert status_of(answer) == 401
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x00\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    ],
)
async def test_what_is_no_request_gets_a_status_and_no_line(
    api: Api, raw: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = await local(api, raw)

    assert status_of(answer) == 400
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["kind"] == "Status"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersion=%C2%B2",
        "resourceVersion=" + "9" * 5000,
        "resourceVersion=-1",
        "limit=%C2%B2",
        "limit=" + "9" * 400,
        "watch=1&timeoutSeconds=" + "9" * 400,
        "continue=MQ",
        "continue=%C2%B2",
        "labelSelector=x%3E%C2%B2",
    ],
)
async def test_a_number_that_is_none_is_a_bad_request(api: Api, query: str) -> None:
    answer = await local(api, request(f"GET {MAPS}?{query}"))

    assert status_of(answer) == 400, answer


async def test_a_log_since_before_the_epoch_is_the_whole_log(api: Api) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "m", "image": "i"}]}}
    await api.create("/api/v1/namespaces/default/pods", pod)

    for seconds in ("9" * 18, "1", "0"):
        query = f"/api/v1/namespaces/default/pods/p/log?sinceSeconds={seconds}"
        assert status_of(await local(api, request(f"GET {query}"))) in (400, 422)  # it has not started


async def test_a_large_object_that_breaks_every_rule_gets_a_short_answer(api: Api) -> None:
    await api.create(CRDS, thing_crd(l={"type": "array", "items": {"type": "integer", "minimum": 5}}))
    thing = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "t"},
        "spec": {"l": [1] * 50_000},
    }

    status, answer = await api.request("POST", "/apis/example.com/v1/namespaces/default/things", thing)

    assert status == 422
    assert len(answer["details"]["causes"]) == 100
    assert answer["message"].endswith("and 49900 more]")


async def test_warnings_of_an_answer_are_bounded(api: Api) -> None:
    fields = {f"field{n}": 1 for n in range(5_000)}

    answer = await local(
        api, request(f"POST {MAPS}", body=json.dumps({"metadata": {"name": "c"}, **fields}).encode())
    )

    head = answer.partition(b"\r\n\r\n")[0]
    assert status_of(answer) == 201
    assert head.count(b"Warning:") > 50
    assert len(head) < 10_000


# Connections


async def test_a_connection_that_says_nothing_is_closed(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.1)

    assert await remote(api_server, b"GET /healthz HTTP/1.1\r\nHost: ") == b""
    reader, writer = await asyncio.open_connection("127.0.0.1", api_server.port)  # no handshake
    async with asyncio.timeout(SOON_S):
        assert await reader.read() == b""
    writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_context, "BODY_TIMEOUT_S", 0.1)
    head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode()

    answer = await local(api, head)

    assert (status_of(answer), b"Connection: close" in answer) == (408, True)


async def test_a_body_that_says_it_is_too_long_is_not_read(api: Api) -> None:
    head = (
        f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {1 << 40}\r\n\r\n".encode()
    )

    reader, writer = await asyncio.open_unix_connection(str(api.server.paths.api_socket))
    writer.write(head)
    line = await asyncio.wait_for(reader.readline(), SOON_S)
    writer.close()

    assert line.split()[1] == b"413"


async def test_who_waits_to_be_told_to_go_on_is_told(api: Api) -> None:
    body = b'{"metadata":{"name":"c"}}'
    reader, writer = await asyncio.open_unix_connection(str(api.server.paths.api_socket))
    writer.write(request(f"POST {MAPS}", "Expect: 100-continue", body=body).removesuffix(body))

    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON_S)).startswith(b"HTTP/1.1 100 ")
    assert status_of(await talk(reader, writer, body)) == 201


async def test_an_old_client_can_watch(api: Api) -> None:
    await api.create(MAPS, {"metadata": {"name": "c"}})
    raw = f"GET {MAPS}?watch=1&timeoutSeconds=1 HTTP/1.0\r\n\r\n".encode()

    answer = await local(api, raw)

    assert status_of(answer) == 200
    assert b'{"type":"ADDED"' in answer


@pytest.fixture
async def narrow(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    """A server that takes three connections of nobody."""
    limits = connections.ConnectionLimits(total_max=20, unknown_max=3, peer_max=20, idle_timeout_s=60)
    monkeypatch.setattr(api_server.remote_connections, "limits", limits)
    yield api_server


async def test_half_open_connections_lock_nobody_out(narrow: ApiServer) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", narrow.port) for _ in range(30)]

    answer = await remote(
        narrow,
        request("GET /api/v1/namespaces", f"Authorization: Bearer {narrow.context.authenticator.token}"),
    )

    assert status_of(answer) == 200
    assert len(narrow.remote_connections) <= 3
    for _, writer in idle:
        writer.close()


# Load


async def test_too_many_requests_are_told_when_to_come_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = load.Share(requests_max=1, watches_max=0, answer_bytes_max=0, body_bytes_max=1000)
    monkeypatch.setattr(load, "REMOTE", narrow)
    token = f"Authorization: Bearer {api.server.context.authenticator.token}"
    _, writer = await connect(api.server)
    writer.write(request(f"POST {MAPS}", token, "Expect: 100-continue", body=b"{}")[:-2])  # never whole
    async with asyncio.timeout(SOON_S):
        while status_of(answer := await remote(api.server, request(f"GET {MAPS}", token))) == 200:
            await asyncio.sleep(0.01)

    assert (status_of(answer), b"Retry-After: 1\r\n" in answer) == (429, True)
    assert "too many requests of the TCP port: at most 1 at once" in message_of(answer)
    await api.get(MAPS)  # the cluster's own share is another one
    writer.close()


async def test_a_watch_that_nobody_reads_ends_and_holds_little(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SEND_TIMEOUT_S", 0.2)
    reader, writer = await asyncio.open_unix_connection(str(api.server.paths.api_socket), limit=4096)
    writer.write(f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    ring = api.server.context.store.ring
    assert ring.watcher_count >= 1
    before = ring.watcher_count

    for n in range(40):
        await api.create(MAPS, {"metadata": {"name": f"m{n}"}, "data": {"k": "v" * 200_000}})
        if ring.watcher_count < before:
            break
    async with asyncio.timeout(SOON_S):
        while ring.watcher_count >= before:
            await asyncio.sleep(0.05)
    writer.close()


async def test_others_are_answered_while_a_large_body_is_read(api: Api) -> None:
    entries = {f"k{n}": "v" for n in range(100_000)}
    body = "\n".join(["metadata: {name: c}", "data:", *(f"  {k}: {v}" for k, v in entries.items())]).encode()
    creating = asyncio.create_task(api.request("POST", MAPS, body, type_=YAML))
    waits = []
    while not creating.done():
        begin = time.monotonic()
        await api.get("/healthz")
        waits.append(time.monotonic() - begin)
        await asyncio.sleep(0.01)

    assert (await creating)[0] == 201
    assert len(waits) > 5
    assert max(waits) < 1.0
