"""Discovery of kinds, and apply against a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from gangline.api.resources import JOBS, MPIJOBS, PODS, Resource
from gangline.kube.apply import LAST_APPLIED, apply, with_last_applied
from gangline.kube.discovery import resource_for
from gangline.kube.errors import NotFound

WIDGETS = {
    "resources": [
        {"name": "widgets", "kind": "Widget", "namespaced": True},
        {"name": "widgets/scale", "kind": "Scale", "namespaced": True},
    ]
}


def served(obj: Any, code: int = 200) -> Any:
    return lambda: web.json_response(obj, status=code)


async def test_known_kinds_need_no_request(server: Any) -> None:
    async with server.client() as client:
        assert await resource_for(client, "batch/v1", "Job") is JOBS
        assert await resource_for(client, "kubeflow.org/v2beta1", "MPIJob") is MPIJOBS

    assert server.requests == []


async def test_other_kinds_are_asked_for_once(server: Any) -> None:
    server.answers += [served(WIDGETS)]
    async with server.client() as client:
        found = [await resource_for(client, "x.dev/v1", "Widget") for _ in range(2)]

    assert found == [Resource("x.dev", "v1", "widgets", "Widget", True)] * 2
    assert server.requests == [("GET", "/apis/x.dev/v1", {})]


@pytest.mark.parametrize("answer", [served(WIDGETS), served({}, 404)])
async def test_a_kind_that_is_not_served_is_an_error_with_a_hint(server: Any, answer: Any) -> None:
    server.answers += [answer]
    async with server.client() as client:
        with pytest.raises(NotFound, match="no kind `Gadget` in `x.dev/v1`") as caught:
            await resource_for(client, "x.dev/v1", "Gadget")

    assert "CustomResourceDefinition" in caught.value.hint


MANIFEST = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "1"}}}


def live(version: str = "5", **labels: str) -> Any:
    obj = with_last_applied(MANIFEST, "default")
    metadata = {**obj["metadata"], "resourceVersion": version, "uid": "u", "labels": labels}
    return {**obj, "metadata": metadata}


async def test_apply_creates_what_is_missing(server: Any) -> None:
    server.answers += [served({}, 404), served({}, 201)]
    async with server.client() as client:
        verb, _ = await apply(client, PODS, MANIFEST)

    assert verb == "created"
    assert LAST_APPLIED in json.loads(server.bodies[1])["metadata"]["annotations"]


async def test_apply_leaves_what_is_as_it_should_be(server: Any) -> None:
    server.answers += [served(live(x="1", other="2"))]
    async with server.client() as client:
        verb, _ = await apply(client, PODS, MANIFEST)

    assert verb == "unchanged"
    assert [method for method, _, _ in server.requests] == ["GET"]


@pytest.mark.parametrize(("version", "want_verb"), [("6", "configured"), ("5", "unchanged")])
async def test_apply_patches_what_differs(server: Any, version: str, want_verb: str) -> None:
    server.answers += [served(live(x="9")), served(live(version, x="1"))]
    async with server.client() as client:
        verb, _ = await apply(client, PODS, MANIFEST)

    assert verb == want_verb
    assert json.loads(server.bodies[1]) == {"metadata": {"labels": {"x": "1"}}}


async def test_apply_changes_what_somebody_else_has_just_created(server: Any, make_status: Any) -> None:
    exists = make_status(409, "AlreadyExists")
    server.answers += [
        served({}, 404),
        served(exists, 409),
        served({"metadata": {"name": "a"}}),
        served(live("6")),
    ]
    async with server.client() as client:
        verb, _ = await apply(client, PODS, MANIFEST)

    assert verb == "configured"
