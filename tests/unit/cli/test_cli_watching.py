"""A collection that a command watches: from a list, or from the moment at which there was none."""

import json
from types import SimpleNamespace

import pytest

from gangline.api.resources import PODS
from gangline.cli.run.watching import watch_objects
from gangline.kube.errors import Forbidden, Gone


class Server:
    """Answers watches in turn with events or an error; the end of the last one ends the test."""

    def __init__(self, *watches):
        self.watches, self.asked = list(watches), []

    async def list(self, resource, namespace, **selectors):
        self.asked.append("list")
        return SimpleNamespace(items=[pod("c")], resource_version="20")

    async def watch(self, resource, namespace, *, resource_version, **selectors):
        self.asked.append(resource_version)
        answer = self.watches.pop(0)
        if isinstance(answer, Exception):
            raise answer
        for kind, name in answer:
            yield SimpleNamespace(type=kind, object=json.dumps(pod(name)))
        raise Forbidden(403, "Forbidden", "enough")


def pod(name):
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "12"}}


async def seen(server, since):
    looks = []
    with pytest.raises(Forbidden):
        await watch_objects(server, PODS, None, lambda objects: looks.append(sorted(objects)), since=since)
    return looks


async def test_all_that_happened_since_is_told_though_nothing_is_left_of_it():
    server = Server([("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("DELETED", "b")])

    assert await seen(server, "11") == [["a"], ["a", "b"], ["b"], []]
    assert server.asked == ["11"]


async def test_what_is_left_is_told_where_the_server_has_forgotten_what_happened():
    server = Server(Gone(410, "Expired", "too old"), [])

    assert await seen(server, "11") == [["c"]]
    assert server.asked == ["11", "list", "20"]
