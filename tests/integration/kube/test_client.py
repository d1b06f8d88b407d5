"""The client against a stand-in server: paging, retries, errors, watches. Not in scope: TLS, kubeconfig."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gangline.api.core import AnyObject
from gangline.api.resources import CRDS, NODES, PODS
from gangline.kube import errors
from gangline.kube.client import Client
from gangline.kube.config import Connection

NAMESPACED = "/api/v1/namespaces/default/pods"


def answer(code: int, body: Any = None, **headers: str) -> Callable[[], web.Response]:
    renamed = {key.replace("_", "-"): value for key, value in headers.items()}
    return lambda: web.json_response(body, status=code, headers=renamed)


def cut() -> None:
    """An answer that never comes: the connection is cut."""
    return


class Pauses:
    """Records pauses instead of making them."""

    def __init__(self) -> None:
        self.taken_s: list[float] = []

    async def __call__(self, delay_s: float) -> None:
        self.taken_s.append(delay_s)


async def test_list_follows_pages_to_the_end(server: Any) -> None:
    for number in range(7):
        await server.put(f"p{number}")
    async with server.client() as client:
        found = await client.list(PODS, "default", limit=3)

    assert [item["metadata"]["name"] for item in found.items] == [f"p{number}" for number in range(7)]
    assert found.resource_version == "107"
    assert [query.get("continue") for _, _, query in server.requests] == [None, "default/p2", "default/p5"]


async def test_whether_there_is_one_takes_one_request(server: Any) -> None:
    async with server.client() as client:
        before = await client.any(PODS, "default")
        for number in range(3):
            await server.put(f"p{number}")
        after = await client.any(PODS, "default")

    assert (before, after) == (False, True)
    assert [query.get("limit") for _, _, query in server.requests] == ["1", "1"]


async def test_list_names_kind_and_version_of_items(server: Any) -> None:
    await server.put("a")
    async with server.client() as client:
        (item,) = (await client.list(PODS)).items

    assert (item["kind"], item["apiVersion"]) == ("Pod", "v1")


async def test_list_decodes_into_types(server: Any) -> None:
    await server.put("a")
    async with server.client() as client:
        (item,) = (await client.list_as(PODS, AnyObject)).items

    assert item.metadata.key == "default/a"


async def test_list_without_items_is_empty(server: Any) -> None:
    async with server.client() as client:
        assert (await client.list(PODS)).items == []


async def test_list_starts_over_in_one_page_when_a_token_expires(server: Any, make_status: Any) -> None:
    for number in range(4):
        await server.put(f"p{number}")
    first = {
        "metadata": {"continue": "old", "resourceVersion": "1"},
        "items": [{"metadata": {"name": "stale"}}],
    }
    server.answers += [answer(200, first), answer(410, make_status(410, "Expired"))]
    async with server.client() as client:
        found = await client.list(PODS, limit=1)

    assert [item["metadata"]["name"] for item in found.items] == ["p0", "p1", "p2", "p3"]
    assert "limit" not in server.requests[-1][2]


async def test_gone_on_the_first_page_is_raised(server: Any, make_status: Any) -> None:
    server.answers.append(answer(410, make_status(410, "Expired")))
    async with server.client() as client:
        with pytest.raises(errors.Gone):
            await client.list(PODS)


async def test_too_many_requests_waits_as_long_as_the_server_says(server: Any, make_status: Any) -> None:
    pauses = Pauses()
    await server.put("a")
    busy = make_status(429, "TooManyRequests")
    server.answers += [answer(429, busy, Retry_After="3"), answer(429, busy, Retry_After="1")]
    async with server.client(sleep=pauses) as client:
        await client.get(PODS, "a", "default")

    assert pauses.taken_s == [3.0, 1.0]


async def test_retries_end_when_the_call_has_no_time_left(server: Any, make_status: Any) -> None:
    pauses = Pauses()
    server.answers.append(answer(429, make_status(429, "TooManyRequests"), Retry_After="25"))
    async with server.client(sleep=pauses) as client:
        with pytest.raises(errors.TooManyRequests) as caught:
            await client.request("POST", NAMESPACED, body={}, timeout_s=20)

    assert caught.value.retry_after_s == 25
    assert pauses.taken_s == []


async def test_refusals_are_counted(server: Any, make_status: Any) -> None:
    pauses = Pauses()
    server.answers += [answer(503, make_status(503, "ServiceUnavailable"), Retry_After="0")] * 20
    async with server.client(sleep=pauses) as client:
        with pytest.raises(errors.Unavailable):
            await client.get(PODS, "a")

    assert len(pauses.taken_s) == 10


async def test_server_errors_are_not_repeated(server: Any, make_status: Any) -> None:
    server.answers += [answer(500, make_status(500, "InternalError", "boom"))] * 2
    async with server.client() as client:
        with pytest.raises(errors.ServerError, match="boom") as caught:
            await client.get(PODS, "a")

    assert caught.value.status == 500
    assert len(server.requests) == 1


async def test_a_get_survives_a_cut_connection(server: Any) -> None:
    pauses = Pauses()
    await server.put("a")
    server.answers += [cut, cut]
    async with server.client(sleep=pauses) as client:
        obj = await client.get(PODS, "a")

    assert obj["metadata"]["name"] == "a"


async def test_a_create_that_may_have_happened_is_not_repeated(server: Any) -> None:
    server.answers += [cut, cut]
    async with server.client(sleep=Pauses()) as client:
        with pytest.raises(errors.Unavailable):
            await client.create(PODS, {"metadata": {"name": "a"}})

    assert [method for method, _, _ in server.requests] == ["POST"]


async def test_an_absent_server_is_unavailable_after_some_tries() -> None:
    pauses = Pauses()
    async with Client(Connection(server="unix:///nonexistent/api.sock"), sleep=pauses) as client:
        with pytest.raises(errors.Unavailable, match="api.sock") as caught:
            await client.create(PODS, {"metadata": {"name": "a"}})

    assert caught.value.status == 0
    assert pauses.taken_s == [0.05, 0.2, 0.5]


@pytest.mark.parametrize(
    ("code", "reason", "want"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (504, "Timeout", errors.ServerError),
        (405, "MethodNotAllowed", errors.ApiError),
    ],
)
async def test_refusals_become_errors(
    server: Any, make_status: Any, code: int, reason: str, want: type[errors.ApiError]
) -> None:
    server.answers.append(answer(code, make_status(code, reason, "no way", name="x")))
    async with server.client() as client:
        with pytest.raises(errors.ApiError) as caught:
            await client.get(PODS, "x")

    error = caught.value
    assert type(error) is want
    assert (error.status, error.reason, str(error)) == (code, reason, "no way")
    assert error.details == {"name": "x"}


async def test_a_refusal_without_a_status_says_what_was_asked(server: Any) -> None:
    server.answers.append(lambda: web.Response(status=502, text="<html>bad gateway"))
    async with server.client() as client:
        with pytest.raises(
            errors.ServerError, match=r"GET /api/v1/nodes/n was answered with status 502: <html>"
        ):
            await client.get(NODES, "n")


async def test_a_redirect_is_no_success(server: Any) -> None:
    server.answers += [lambda: web.Response(status=302, headers={"Location": "/login"})] * 2
    async with server.client() as client:
        with pytest.raises(errors.ApiError, match="POST .* was answered with status 302"):
            await client.create(PODS, {"metadata": {"name": "x"}})
        with pytest.raises(errors.ApiError, match="GET .* was answered with status 302"):
            await client.get(NODES, "n")


async def test_a_write_without_an_answer_in_time_is_counted_and_not_repeated(tmp_path: Path) -> None:
    connections = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(reader)
        await reader.read()
        writer.close()

    listening = await asyncio.start_unix_server(silent, tmp_path / "socket")
    async with Client(Connection(server=f"unix://{tmp_path}/socket")) as client:
        with pytest.raises(errors.Unavailable, match="too long"):
            await client.request("POST", NAMESPACED, body={}, timeout_s=0.05)

        assert client.answers() == {("POST", "error"): 1}
    assert len(connections) == 1
    listening.close()


async def test_broken_rules_come_as_field_errors(server: Any, make_status: Any) -> None:
    causes = [{"reason": "FieldValueRequired", "field": "spec.containers", "message": "Required value"}]
    server.answers.append(answer(422, make_status(422, "Invalid", "pod is invalid", causes=causes)))
    async with server.client() as client:
        with pytest.raises(errors.Invalid) as caught:
            await client.create(PODS, {"metadata": {"name": "x"}})

    (found,) = caught.value.field_errors
    assert (found.reason, found.path, found.message) == ("Required", "spec.containers", "Required value")


async def test_an_answer_that_is_no_json_is_a_server_error(server: Any) -> None:
    server.answers.append(lambda: web.Response(text="hello"))
    async with server.client() as client:
        with pytest.raises(errors.ServerError, match="no JSON object"):
            await client.get(PODS, "x")


@pytest.mark.parametrize(
    ("kind", "want_type", "want_query"),
    [
        ("merge", "application/merge-patch+json", {}),
        ("json", "application/json-patch+json", {}),
        ("strategic", "application/strategic-merge-patch+json", {}),
        ("apply", "application/apply-patch+yaml", {"fieldManager": "gangline"}),
    ],
)
async def test_patch_names_its_type(server: Any, kind: Any, want_type: str, want_query: Any) -> None:
    server.answers.append(answer(200, {}))
    async with server.client() as client:
        await client.patch(PODS, "a", {"metadata": {}}, "default", kind=kind, subresource="status")

    assert server.headers[0]["Content-Type"] == want_type
    assert server.requests == [("PATCH", f"{NAMESPACED}/a/status", want_query)]


async def test_delete_sends_its_options(server: Any) -> None:
    server.answers.append(answer(200, {}))
    async with server.client() as client:
        await client.delete(PODS, "a", "default", propagation="Foreground", grace_period_s=0, uid="u")

    assert json.loads(server.bodies[0]) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
    }


async def test_writes_go_to_the_namespace_of_the_object_or_the_connection(server: Any) -> None:
    server.answers += [answer(200, {})] * 4
    async with server.client() as client:
        await client.create(PODS, {"metadata": {"name": "a", "namespace": "team"}}, dry_run=True)
        await client.update(PODS, {"metadata": {"name": "a"}}, subresource="status")
        await client.create_subresource(PODS, "a", "binding", {}, "team")
        await client.create(CRDS, {"metadata": {"name": "x.y"}})

    assert server.requests == [
        ("POST", "/api/v1/namespaces/team/pods", {"dryRun": "All"}),
        ("PUT", f"{NAMESPACED}/a/status", {}),
        ("POST", "/api/v1/namespaces/team/pods/a/binding", {}),
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {}),
    ]


async def test_logs_come_in_pieces(server: Any) -> None:
    server.answers.append(lambda: web.Response(text="one\ntwo\n"))
    async with server.client() as client:
        text = b"".join([piece async for piece in client.logs("a", "default", tail_lines=2, follow=True)])

    assert text == b"one\ntwo\n"
    assert server.requests == [("GET", f"{NAMESPACED}/a/log", {"follow": "true", "tailLines": "2"})]


async def test_watch_yields_changes_and_bookmarks_until_the_server_ends_it(server: Any) -> None:
    async with server.client() as client:
        seen = []
        await server.put("a")
        async with aclosing(client.watch(PODS, resource_version="100")) as events:
            async for event in events:
                seen.append((event.type, json.loads(event.object)["metadata"]["resourceVersion"]))
                if len(seen) == 1:
                    await server.bookmark()
                elif len(seen) == 2:
                    await server.remove("a")
                else:
                    await server.end_watches("end")

    assert seen == [("ADDED", "101"), ("BOOKMARK", "102"), ("DELETED", "103")]
    query = server.requests[0][2]
    assert query["allowWatchBookmarks"] == "true"
    assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_watch_takes_events_larger_than_any_buffer(server: Any) -> None:
    await server.put("a", labels={"big": "x" * 3_000_000})
    async with server.client() as client, aclosing(client.watch(PODS, resource_version="100")) as events:
        event = await anext(events)

    assert len(event.object) > 3_000_000


@pytest.mark.parametrize("in_stream", [False, True])
async def test_watch_from_a_version_that_is_too_old_is_gone(server: Any, in_stream: bool) -> None:
    server.is_gone_in_stream = in_stream
    await server.put("a")
    await server.compact()
    async with server.client() as client:
        with pytest.raises(errors.Gone, match="too old") as caught:
            await anext(client.watch(PODS, resource_version="1"))

    assert caught.value.status == 410


async def test_watch_with_a_cut_connection_is_unavailable(server: Any) -> None:
    await server.put("a")
    async with server.client() as client:
        events = client.watch(PODS, resource_version="100")
        await anext(events)
        await server.end_watches("cut")
        with pytest.raises(errors.Unavailable):
            await anext(events)


async def test_watch_refuses_a_line_that_is_no_event(server: Any) -> None:
    server.answers.append(lambda: web.Response(text="hello\n"))
    async with server.client() as client:
        with pytest.raises(errors.ServerError, match="no event"):
            await anext(client.watch(PODS, resource_version="1"))


async def test_a_silent_watch_ends(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.kube.client.watch_idle_timeout_s", 0.05)
    async with server.client() as client, asyncio.timeout(60):
        assert [event async for event in client.watch(PODS, resource_version="100")] == []


async def test_requests_in_flight_are_bounded(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.kube.sender.concurrent_requests_max", 2)
    await server.put("a")
    async with server.client() as client:
        await asyncio.gather(*(client.get(PODS, "a") for _ in range(20)))

    assert len(server.requests) == 20
    assert len(server.connections) <= 2


async def test_a_closed_client_is_unavailable(server: Any) -> None:
    client = server.client()
    await client.close()
    with pytest.raises(errors.Unavailable, match="closed"):
        await client.get(PODS, "a")


async def test_a_header_of_a_request_takes_the_place_of_the_usual_one(server: Any) -> None:
    async with server.client() as client:
        with pytest.raises(errors.NotFound):
            await client.request("GET", f"{NAMESPACED}/a", headers={"Accept": "application/json;as=Table"})
        with pytest.raises(errors.NotFound):
            await client.get(PODS, "a")

    assert [sent["Accept"] for sent in server.headers] == [
        "application/json;as=Table",
        "application/json, */*",
    ]
