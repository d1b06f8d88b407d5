"""CustomResourceDefinitions and their objects."""

import asyncio
from typing import Any

import pytest

Api = Any
"""The client of conftest.py."""

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TRAINS = "/apis/example.dev/v1/namespaces/default/trains"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

SPEC = {
    "type": "object",
    "required": ["model"],
    "properties": {
        "model": {"type": "string"},
        "replicas": {"type": "integer", "minimum": 0, "default": 1},
    },
}
STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def version(name: str, *, storage: bool = False, **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": SCALE},
        "additionalPrinterColumns": [
            {"name": "Model", "type": "string", "jsonPath": ".spec.model"},
        ],
        **fields,
    }


def crd(*versions: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "trains.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "trains", "kind": "Train"},
            "versions": list(versions) or [version("v1", storage=True)],
        },
    }


def train(name: str = "t", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.dev/v1",
        "kind": "Train",
        "metadata": {"name": name},
        "spec": {"model": "resnet", **spec},
    }


async def test_definition_is_established_and_served_at_once(api: Api) -> None:
    status, _ = await api.request("GET", TRAINS)
    assert status == 404

    made = await api.create(CRDS, crd())

    conditions = {c["type"]: c["status"] for c in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert made["status"]["storedVersions"] == ["v1"]
    assert made["status"]["acceptedNames"]["listKind"] == "TrainList"
    assert (await api.get(TRAINS))["kind"] == "TrainList"
    groups = [group["name"] for group in (await api.get("/apis"))["groups"]]
    assert "example.dev" in groups


async def test_definitions_outlive_a_restart(api: Api) -> None:
    await api.create(CRDS, crd())
    await api.create(TRAINS, train())
    server = api.server
    await server.stop()
    await server.start()

    assert (await api.get(TRAINS))["items"][0]["spec"]["model"] == "resnet"


async def test_objects_get_defaults_lose_unknown_fields_and_are_checked(api: Api) -> None:
    await api.create(CRDS, crd())

    made = await api.create(TRAINS, train(speed=3), fieldValidation="Ignore")
    status, body = await api.request("POST", TRAINS, train("bad", replicas=-1, model=7))
    strict, strict_body = await api.request("POST", TRAINS, train("u", speed=3), fieldValidation="Strict")

    assert made["spec"] == {"model": "resnet", "replicas": 1}
    assert (status, body["reason"]) == (422, "Invalid")
    fields = {cause["field"] for cause in body["details"]["causes"]}
    assert fields == {"spec.model", "spec.replicas", ".spec.replicas"}  # the rule of `scale` has its own path
    assert strict == 400 and "spec.speed" in strict_body["message"]


async def test_a_default_that_a_definition_gets_later_shows_on_objects_stored_before(api: Api) -> None:
    definition = crd()
    await api.create(CRDS, definition)
    before = await api.create(TRAINS, train("old"))
    version = definition["spec"]["versions"][0]["name"]
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert version and "later" not in spec and "later" not in before["spec"]

    place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/later"
    patch = [{"op": "add", "path": place, "value": {"type": "string", "default": "A"}}]
    headers = {"Content-Type": "application/json-patch+json"}
    async with api.session.patch(
        f"{CRDS}/{definition['metadata']['name']}", json=patch, headers=headers
    ) as a:
        assert a.status == 200

    assert (await api.get(f"{TRAINS}/old"))["spec"]["later"] == "A"
    assert (await api.get(TRAINS))["items"][0]["spec"]["later"] == "A"


async def test_unknown_fields_are_warned_about(api: Api) -> None:
    await api.create(CRDS, crd())

    async with api.session.post(TRAINS, json=train(speed=3)) as answer:
        assert answer.status == 201
        assert answer.headers["Warning"] == '299 - "unknown field \\"spec.speed\\""'


async def test_status_lives_apart_and_metadata_is_not_its(api: Api) -> None:
    await api.create(CRDS, crd())
    made = await api.create(TRAINS, {**train(), "status": {"phase": "early"}})

    reported = await api.patch(
        f"{TRAINS}/t/status",
        {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 9}, "status": {"phase": "ok"}},
    )
    wished = await api.patch(f"{TRAINS}/t", {"spec": {"replicas": 3}, "status": {"phase": "no"}})

    assert "status" not in made
    assert reported["status"] == {"phase": "ok"} and reported["spec"]["replicas"] == 1
    assert "labels" not in reported["metadata"] and reported["metadata"]["generation"] == 1
    assert wished["status"] == {"phase": "ok"} and wished["metadata"]["generation"] == 2


async def test_update_needs_a_revision_and_strategic_patches_are_refused(api: Api) -> None:
    await api.create(CRDS, crd())
    await api.create(TRAINS, train())

    status, body = await api.request("PUT", f"{TRAINS}/t", train())
    strategic, _ = await api.request("PATCH", f"{TRAINS}/t", {}, type_=api.STRATEGIC)

    assert status == 422 and "metadata.resourceVersion" in body["message"]
    assert strategic == 415


async def test_scale_reads_and_writes_the_replicas(api: Api) -> None:
    await api.create(CRDS, crd())
    await api.create(TRAINS, train())
    await api.patch(f"{TRAINS}/t/status", {"status": {"replicas": 1, "selector": "app=t"}})

    before = await api.get(f"{TRAINS}/t/scale")
    after = await api.patch(f"{TRAINS}/t/scale", {"spec": {"replicas": 4}})
    by_strategic = await api.patch(f"{TRAINS}/t/scale", {"spec": {"replicas": 5}}, api.STRATEGIC)

    assert before["kind"] == "Scale" and before["apiVersion"] == "autoscaling/v1"
    assert before["spec"] == {"replicas": 1}
    assert before["status"] == {"replicas": 1, "selector": "app=t"}
    assert after["spec"] == {"replicas": 4} and by_strategic["spec"] == {"replicas": 5}
    assert (await api.get(f"{TRAINS}/t"))["spec"] == {"model": "resnet", "replicas": 5}


async def test_every_version_shows_the_same_object(api: Api) -> None:
    await api.create(CRDS, crd(version("v1", storage=True), version("v1beta1")))
    await api.create(TRAINS, train())
    old_path = TRAINS.replace("v1/", "v1beta1/")

    old = await api.get(f"{old_path}/t")
    changed = await api.patch(f"{old_path}/t", {"spec": {"replicas": 2}})
    listing = await api.get(old_path)
    new = await api.get(f"{TRAINS}/t")

    assert old["apiVersion"] == changed["apiVersion"] == "example.dev/v1beta1"
    assert listing["items"][0]["apiVersion"] == "example.dev/v1beta1"
    assert new["apiVersion"] == "example.dev/v1" and new["spec"]["replicas"] == 2


async def test_printer_columns_make_the_table(api: Api) -> None:
    await api.create(CRDS, crd())
    await api.create(TRAINS, train())

    _, table = await api.request("GET", TRAINS, accept=TABLE)

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Model"]
    assert table["rows"][0]["cells"] == ["t", "resnet"]


async def test_objects_go_with_their_definition_finalizers_first(api: Api) -> None:
    await api.create(CRDS, crd())
    await api.create(TRAINS, train("free"))
    await api.create(TRAINS, {**train("held"), "metadata": {"name": "held", "finalizers": ["example.dev/x"]}})

    marked = await api.delete(f"{CRDS}/trains.example.dev")
    async with asyncio.timeout(60):
        while len((await api.get(TRAINS))["items"]) > 1:
            await asyncio.sleep(0)
        assert (await api.request("GET", f"{CRDS}/trains.example.dev"))[0] == 200
        assert (await api.request("POST", TRAINS, train("late")))[0] == 405
        await api.patch(f"{TRAINS}/held", {"metadata": {"finalizers": None}})
        while (await api.request("GET", f"{CRDS}/trains.example.dev"))[0] != 404:
            await asyncio.sleep(0)

    assert marked["metadata"]["deletionTimestamp"]
    assert (await api.request("GET", TRAINS))[0] == 404


@pytest.mark.parametrize("change", [{"kind": "Other"}, {"apiVersion": "example.dev/v9"}])
async def test_body_of_another_type_is_refused(api: Api, change: dict[str, str]) -> None:
    await api.create(CRDS, crd())

    status, _ = await api.request("POST", TRAINS, {**train(), **change})

    assert status == 400


async def test_rules_of_a_definition_hold_and_others_are_warned_about(api: Api) -> None:
    spec = SPEC | {
        "x-kubernetes-validations": [
            {"rule": "self.model == oldSelf.model", "message": "model is immutable"},
            {"rule": "self.replicas <= 9 || self.model.startsWith('big-')"},
            {"rule": "self.model.split('-').size() > 0"},
        ]
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": STATUS}}
    defined = crd(version("v1", storage=True, schema={"openAPIV3Schema": schema}))
    async with api.session.post(CRDS, json=defined) as answer:
        assert answer.status == 201
        assert answer.headers["Warning"] == (
            "299 - \"spec: the rule `self.model.split('-').size() > 0` is not evaluated here: "
            '`split()` is beyond the served part of CEL"'
        )
    await api.create(TRAINS, train())
    status, body = await api.request("PATCH", f"{TRAINS}/t", {"spec": {"model": "b"}}, type_=MERGE)
    assert status == 422
    assert "spec: Invalid value: model is immutable" in body["message"]
    await api.patch(f"{TRAINS}/t", {"spec": {"replicas": 2}})
    assert (await api.request("POST", TRAINS, train("u", replicas=10)))[0] == 422
    await api.create(TRAINS, train("v", model="big-a", replicas=10))
