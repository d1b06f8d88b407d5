"""Many requests that are sent at once, against a stand-in server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from gangline.kube import errors
from gangline.kube.client import Client
from gangline.kube.config import Connection

POSTS = [("/api/v1/namespaces/default/events", {"number": number}) for number in range(3)]


async def no_pause(_: float) -> None:
    return


def made() -> web.Response:
    return web.json_response({}, status=201)


async def test_what_is_posted_at_once_is_told_one_by_one(server: Any, make_status: Any) -> None:
    def there() -> web.Response:
        return web.json_response(make_status(409, "AlreadyExists", "it is there"), status=409)

    server.answers += [made, there, made]
    async with server.client() as client:
        failed = await client.post_all(POSTS)
        counted = client.answers()

    assert sum(error is None for error in failed) == 2
    assert [type(error) for error in failed if error is not None] == [errors.AlreadyExists]
    assert sorted(json.loads(body)["number"] for body in server.bodies) == [0, 1, 2]
    assert {(method, path) for method, path, _ in server.requests} == {("POST", POSTS[0][0])}
    assert counted == {("POST", "201"): 2, ("POST", "409"): 1}


async def test_of_what_is_posted_at_once_only_what_was_put_off_is_sent_again(
    server: Any, make_status: Any
) -> None:
    def busy() -> web.Response:
        body = make_status(429, "TooManyRequests", "busy")
        return web.json_response(body, status=429, headers={"Retry-After": "0"})

    server.answers += [busy, lambda: None, made, made]
    async with server.client() as client:
        failed = await client.post_all(POSTS)

    assert len(server.requests) == 4
    assert [type(error) for error in failed if error is not None] == [errors.Unavailable]


async def test_what_is_posted_at_once_and_not_answered_in_time_is_unavailable(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.kube.sender.request_timeout_s", 0.0)
    async with server.client() as client:
        failed = await client.post_all(POSTS)

    assert [type(error) for error in failed] == [errors.Unavailable] * 3


async def test_an_absent_server_takes_nothing_of_what_is_posted_at_once() -> None:
    async with Client(Connection(server="unix:///nowhere/socket"), sleep=no_pause) as client:
        failed = await client.post_all(POSTS)

    assert [type(error) for error in failed] == [errors.Unavailable] * 3


async def test_many_that_post_at_once_share_the_slots_and_do_not_wait_for_each_other(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.kube.sender.concurrent_requests_max", 4)
    server.answers += [made] * 12
    async with server.client() as client, asyncio.timeout(60):
        failed = await asyncio.gather(*(client.post_all(POSTS) for _ in range(4)))

    assert failed == [[None] * 3] * 4


async def waiting_for_slots(client: Client) -> asyncio.Task[list[errors.ApiError | None]]:
    """Have one post at once that gets as many slots as are free, and must wait for more."""
    posting = asyncio.create_task(client.post_all(POSTS))
    async with asyncio.timeout(10):
        while not client._slots.locked():
            await asyncio.sleep(0)
    return posting


async def test_one_that_is_cancelled_while_it_waits_gives_its_slots_back(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.kube.sender.concurrent_requests_max", 4)
    server.answers += [made] * 3
    async with server.client() as client, asyncio.timeout(10):
        for _ in range(2):
            await client._slots.acquire()
        posting = await waiting_for_slots(client)

        posting.cancel()
        await asyncio.wait([posting])
        client._slots.release()

        assert await client.post_all(POSTS) == [None] * 3


async def test_the_time_for_an_answer_begins_when_the_request_is_sent(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.kube.sender.concurrent_requests_max", 4)
    monkeypatch.setattr("gangline.kube.sender.request_timeout_s", 0.0)
    server.answers += [made] * 3
    async with server.client() as client, asyncio.timeout(10):
        for _ in range(2):
            await client._slots.acquire()
        posting = await waiting_for_slots(client)

        monkeypatch.setattr("gangline.kube.sender.request_timeout_s", 30.0)
        client._slots.release()

        assert await posting == [None] * 3
