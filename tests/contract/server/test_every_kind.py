"""Every served kind on the embedded server and on a real one: what both answer has the same shape."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from gangline.api.resources import Resource
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.resources import STORED_KINDS
from gangline.cluster.server.server import ApiServer
from gangline.kube.config import load_kubeconfig

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
OBJECTS = Path(__file__).with_name("minimal_objects.yaml")
NAME = "every-kind"

Answer = tuple[int, Any]

ELSEWHERE_ONLY = {
    "nodes": (".spec.taints[]",),  # an admission plugin taints what has not said that it is ready
    "persistentvolumes": (".status.lastPhaseTransitionTime",),
    "volumeattributesclasses": (".metadata.finalizers[]",),
    "daemonsets": (".metadata.annotations.deprecated",),
    "certificatesigningrequests": (".spec.uid",),
    "customresourcedefinitions": (".status",),
}
"""What only a real server puts into a new object."""
HERE_ONLY = {
    "customresourcedefinitions": (".status",),  # established at once, also in a dry run
    "certificatesigningrequests": ("('test', 'Update')",),
    "deviceclasses": ("('test', 'Update')",),  # owns an empty spec
    "persistentvolumeclaims": (".spec.storageClassName",),  # there is a default class
}
KEPT_ELSEWHERE = {"replicationcontrollers", "servicecidrs"}
"""Kinds whose objects a finalizer of a real server keeps a while, so that a deletion shows them."""
NEWER = {"podgroups"}
"""Kinds of a newer release than the real server's, or that it serves behind a feature gate."""


class Server:
    """Requests to one server, with the administrator's credentials."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        connection = load_kubeconfig(kubeconfig)
        self.namespace = namespace
        self._root = connection.server
        self._ssl = ssl.create_default_context(cadata=(connection.ca_data or b"").decode())
        self._headers = {"Authorization": f"Bearer {connection.token}"}
        self._session = aiohttp.ClientSession()

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        type_: str = "application/json",
        accept: str = "",
        **query: str,
    ) -> Answer:
        headers = {**self._headers, "Content-Type": type_, "Accept": accept or "application/json"}
        data = None if body is None else json.dumps(body, separators=(",", ":"))
        async with self._session.request(
            method, self._root + path, data=data, headers=headers, params=query, ssl=self._ssl
        ) as answer:
            return answer.status, json.loads(await answer.text())


@pytest.fixture
async def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    api = ApiServer(ClusterPaths.of("test"))
    await api.start()
    server = Server(api.paths.kubeconfig, "default")
    yield server
    await server.close()
    await api.stop()


@pytest.fixture
async def real(real_cluster: Any) -> AsyncIterator[Server]:
    server = Server(real_cluster.kubeconfig, "default")
    yield server
    await server.close()


def minimal(resource: Resource, namespace: str) -> dict[str, Any]:
    """Return the least object of a kind."""
    body = yaml.safe_load(OBJECTS.read_text().replace("NAMESPACE", namespace))[resource.plural]
    metadata = {"name": NAME, **body.get("metadata", {})}
    if resource.namespaced:
        metadata["namespace"] = namespace
    return {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of every value that is not empty; items of lists are not told apart."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, f"{prefix}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from paths(item, f"{prefix}[]")
    elif value or value is False:
        yield prefix


def shape(obj: dict[str, Any]) -> list[str]:
    """Return what an object consists of; what controllers or the server's own settings add is left out."""
    entries = [(entry["manager"], entry["operation"]) for entry in obj["metadata"].get("managedFields", ())]
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return [*sorted(set(paths({**obj, "metadata": metadata}))), *map(str, entries)]


def summary(answer: Answer) -> Any:
    """Return what two servers must agree about."""
    status, body = answer
    if body.get("kind") == "Table":
        return status, [
            (column["name"], column["type"], column["priority"]) for column in body["columnDefinitions"]
        ]
    if body.get("kind") == "Status":
        return status, body.get("reason"), body.get("status")
    return status, "object"


async def walk(server: Server, resource: Resource) -> dict[str, Any]:
    """Return what a server answers to each verb."""
    body = minimal(resource, server.namespace)
    name = body["metadata"]["name"]
    collection = resource.path(server.namespace)
    path = resource.path(server.namespace, name)
    await server.request("DELETE", path)
    labels = {"metadata": {"labels": {"x": "y"}}}
    notes = {
        **{key: body[key] for key in ("apiVersion", "kind")},
        "metadata": {"name": name, "annotations": {"a": "b"}},
    }
    unknown = {**body, "nonsense": 1, "metadata": {**body["metadata"], "name": f"{name}-2"}}
    seen: dict[str, Any] = {}
    status, made = await server.request("POST", collection, body, fieldManager="test", dryRun="All")
    seen["new"] = (status, shape(made) if status == 201 else made)
    seen["create"] = summary(await server.request("POST", collection, body, fieldManager="test"))
    seen["again"] = summary(await server.request("POST", collection, body))
    seen["strict"] = summary(
        await server.request("POST", collection, unknown, fieldValidation="Strict", dryRun="All")
    )
    seen["get"] = summary(await server.request("GET", path))
    seen["table"] = summary(await server.request("GET", path, accept=TABLE))
    seen["merge"] = summary(await server.request("PATCH", path, labels, MERGE))
    seen["strategic"] = summary(await server.request("PATCH", path, labels, STRATEGIC))
    seen["apply"] = summary(await server.request("PATCH", path, notes, APPLY, fieldManager="other"))
    seen["bad type"] = summary(await server.request("POST", collection, {**body, "metadata": 7}))
    seen["delete"] = summary(await server.request("DELETE", path, {"gracePeriodSeconds": 0}))
    return seen


def without(paths: list[str], prefixes: tuple[str, ...]) -> list[str]:
    return [path for path in paths if not path.startswith(prefixes)]


@pytest.mark.kubernetes
@pytest.mark.parametrize("resource", STORED_KINDS, ids=lambda resource: resource.plural)
async def test_both_servers_answer_alike(resource: Resource, embedded: Server, real: Server) -> None:
    if (await real.request("GET", resource.path(real.namespace)))[0] == 404:
        assert resource.plural in NEWER, "the real server does not serve it"
        pytest.skip(f"the release of the real server has no {resource.api_version} {resource.plural}")
    here, elsewhere = await walk(embedded, resource), await walk(real, resource)

    if resource.plural in KEPT_ELSEWHERE:
        del here["delete"], elsewhere["delete"]
    (status, mine), (want, theirs) = here.pop("new"), elsewhere.pop("new")
    assert (status, here) == (want, elsewhere)
    assert without(mine, HERE_ONLY.get(resource.plural, ())) == without(
        theirs, ELSEWHERE_ONLY.get(resource.plural, ())
    )


@pytest.mark.parametrize("resource", STORED_KINDS, ids=lambda resource: resource.plural)
async def test_kind_is_stored_shown_changed_and_deleted(resource: Resource, embedded: Server) -> None:
    seen = await walk(embedded, resource)

    assert {key: value[0] for key, value in seen.items()} == {
        **dict.fromkeys(("new", "create"), 201),
        **dict.fromkeys(("get", "table", "merge", "strategic", "apply", "delete"), 200),
        **dict.fromkeys(("strict", "bad type"), 400),
        "again": 409,
    }
