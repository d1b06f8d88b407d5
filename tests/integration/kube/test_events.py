"""The recorder: created once, counted after, never in the way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from gangline.api.core import ObjectMeta
from gangline.api.resources import PODS
from gangline.kube import events
from gangline.kube.events import Recorder, cut_message

JOB = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "j", "namespace": "team", "uid": "u"},
}


def ok() -> web.Response:
    return web.json_response({})


def missing() -> web.Response:
    return web.json_response({}, status=404)


async def test_an_event_is_created_beside_its_object(server: Any) -> None:
    server.answers += [ok]
    async with server.client() as client:
        recorder = Recorder(client, "gangline-operator")
        recorder.event(JOB, "Normal", "MPIJobCreated", "MPIJob team/j is created.")
        await recorder.close()

    assert server.requests == [("POST", "/api/v1/namespaces/team/events", {})]
    event = json.loads(server.bodies[0])
    assert event["metadata"]["name"].startswith("j.")
    assert event["involvedObject"] == {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "namespace": "team",
        "name": "j",
        "uid": "u",
    }
    assert (event["type"], event["reason"], event["count"]) == ("Normal", "MPIJobCreated", 1)
    assert event["message"] == "MPIJob team/j is created."
    assert event["source"] == {"component": "gangline-operator"}
    assert event["firstTimestamp"] == event["lastTimestamp"]


async def test_a_repeated_event_is_counted(server: Any) -> None:
    server.answers += [ok] * 4
    async with server.client() as client:
        recorder = Recorder(client, "c")
        for message in ("one", "one", "other", "one"):
            recorder.event(JOB, "Warning", "Failed", message)
        await recorder.close()

    assert [method for method, _, _ in server.requests] == ["POST", "PATCH", "POST", "PATCH"]
    assert server.requests[1][1].rpartition("/")[2] == json.loads(server.bodies[0])["metadata"]["name"]
    assert [json.loads(server.bodies[index])["count"] for index in (1, 3)] == [2, 3]


async def test_an_event_that_the_server_forgot_is_created_again(server: Any) -> None:
    server.answers += [ok, missing, ok]
    async with server.client() as client:
        recorder = Recorder(client, "c")
        for _ in range(2):
            recorder.event(JOB, "Normal", "A", "b")
        await recorder.close()

    assert [method for method, _, _ in server.requests] == ["POST", "PATCH", "POST"]


async def test_events_of_several_objects_are_sent_at_once_and_those_of_one_in_order() -> None:
    sent: list[str] = []
    all_there = asyncio.Event()

    class Server:
        async def post_all(self, requests: Any) -> list[None]:
            await asyncio.gather(*(self.create(None, body) for _, body in requests))
            return [None] * len(requests)

        async def create(self, resource: Any, body: dict[str, Any]) -> dict[str, Any]:
            sent.append(f"{body['involvedObject']['name']}: {body['message']}")
            if len(sent) == 3:
                all_there.set()
            await all_there.wait()
            return {}

    recorder = Recorder(Server(), "c")
    for name, message in (("a", "first"), ("a", "second"), ("b", "first"), ("c", "first")):
        job = {**JOB, "metadata": {"name": name, "namespace": "team", "uid": name}}
        recorder.event(job, "Normal", "Said", message)
    async with asyncio.timeout(10):
        await recorder.flush()
    await recorder.close()

    assert sorted(sent[:3]) == ["a: first", "b: first", "c: first"]
    assert sent[3:] == ["a: second"]


async def test_events_of_objects_without_a_namespace_are_in_default(server: Any) -> None:
    server.answers += [ok]
    async with server.client() as client:
        recorder = Recorder(client, "c")
        recorder.event(("v1", "Node", ObjectMeta(name="n")), "Normal", "Ready", "is ready")
        await recorder.close()

    assert server.requests[0][1] == "/api/v1/namespaces/default/events"
    assert json.loads(server.bodies[0])["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n"}


async def test_a_refused_event_is_dropped_and_the_next_one_sent(server: Any) -> None:
    server.answers += [lambda: web.json_response({}, status=403), ok]
    async with server.client() as client:
        recorder = Recorder(client, "c")
        recorder.event(JOB, "Normal", "A", "refused")
        recorder.event(JOB, "Normal", "A", "taken")
        await recorder.close()

    assert recorder.dropped_count == 1
    assert len(server.requests) == 2


async def test_too_many_events_are_dropped(server: Any) -> None:
    server.answers += [ok] * 3
    async with server.client() as client:
        recorder = Recorder(client, "c", queue_max=3)
        for number in range(5):
            recorder.event(JOB, "Normal", "A", str(number))
        await recorder.close()

    assert recorder.dropped_count == 2
    assert len(server.requests) == 3


async def test_events_wait_at_a_closed_gate(server: Any) -> None:
    server.answers += [ok] * 2
    gate = asyncio.Event()
    async with server.client() as client:
        recorder = Recorder(client, "c", gate=gate)
        recorder.event(JOB, "Normal", "A", "b")
        await client.get(PODS, "p", "team")  # time enough for an event to be sent
        assert [method for method, _, _ in server.requests] == ["GET"]
        gate.set()
        await recorder.flush()

    assert [method for method, _, _ in server.requests] == ["GET", "POST"]


async def test_events_do_not_wait_for_ever_at_a_closed_gate(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "give_way_max_s", 0.0)
    server.answers += [ok]
    async with server.client() as client:
        recorder = Recorder(client, "c", gate=asyncio.Event())
        recorder.event(JOB, "Normal", "A", "b")
        await recorder.flush()

    assert len(server.requests) == 1


async def test_events_that_wait_at_a_gate_are_sent_at_the_end(server: Any) -> None:
    server.answers += [ok] * 2
    async with server.client() as client:
        recorder = Recorder(client, "c", gate=asyncio.Event())
        recorder.event(JOB, "Normal", "A", "b")
        await client.get(PODS, "p", "team")
        await recorder.close()

    assert [method for method, _, _ in server.requests] == ["GET", "POST"]
    assert recorder.dropped_count == 0


def test_a_message_is_cut_at_1024_bytes_and_never_inside_a_character() -> None:
    cut = cut_message("ü" * 1000)

    assert len(cut.encode()) <= 1024
    assert cut.endswith("ü...")
    assert cut_message("x" * 1024) == "x" * 1024
