"""Server-side apply: create, change, drop, share, conflict, force."""

import json
from typing import Any

import pytest

Api = Any
"""The client of conftest.py."""

APPLY = "application/apply-patch+yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def config_map(data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return body if data is None else {**body, "data": data}


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [*containers]},
    }


async def apply(api: Api, path: str, body: Any, manager: str = "one", want: int = 200, **params: Any) -> Any:
    params["fieldManager"] = manager
    status, answer = await api.request("PATCH", path, body, type_=APPLY, **params)
    assert status == want, answer
    return answer


async def test_absent_object_is_created_and_its_fields_are_owned(api: Api) -> None:
    made = await apply(api, f"{MAPS}/a", config_map({"k": "v"}, labels={"x": "y"}), want=201)

    entry = made["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["fieldsType"]) == ("one", "Apply", "FieldsV1")
    assert entry["fieldsV1"] == {"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}


async def test_yaml_is_taken(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"

    assert (await apply(api, f"{MAPS}/a", text, want=201))["data"] == {"k": "v"}


async def test_applying_the_same_again_changes_nothing(api: Api) -> None:
    made = await apply(api, f"{MAPS}/a", config_map({"k": "v"}), want=201)

    assert await apply(api, f"{MAPS}/a", config_map({"k": "v"})) == made


async def test_what_a_manager_leaves_out_goes_what_others_wrote_stays(api: Api) -> None:
    await apply(api, f"{MAPS}/a", config_map({"mine": "1", "both": "2"}), want=201)
    await apply(api, f"{MAPS}/a", config_map({"both": "2", "theirs": "3"}), "two")
    await api.patch(f"{MAPS}/a", {"data": {"patched": "4"}})

    after = await apply(api, f"{MAPS}/a", config_map())

    assert after["data"] == {"both": "2", "theirs": "3", "patched": "4"}


async def test_changing_anothers_field_is_a_conflict_and_force_takes_it(api: Api) -> None:
    await apply(api, f"{MAPS}/a", config_map({"k": "1", "other": "x"}), want=201)

    refused = await apply(api, f"{MAPS}/a", config_map({"k": "2"}), "two", want=409)
    forced = await apply(api, f"{MAPS}/a", config_map({"k": "2"}), "two", force="true")

    assert refused["reason"] == "Conflict"
    assert refused["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}
    ]
    assert forced["data"] == {"k": "2", "other": "x"}
    owners = {entry["manager"]: entry["fieldsV1"] for entry in forced["metadata"]["managedFields"]}
    assert owners == {"one": {"f:data": {"f:other": {}}}, "two": {"f:data": {"f:k": {}}}}


async def test_lists_are_joined_by_their_keys(api: Api) -> None:
    first = {"name": "a", "image": "i:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}
    await apply(api, f"{PODS}/p", pod(first, {"name": "b", "image": "j"}), want=201)

    after = await apply(
        api,
        f"{PODS}/p",
        pod({"name": "a", "image": "i:2", "env": first["env"]}, {"name": "b", "image": "j"}),
    )

    assert [c["image"] for c in after["spec"]["containers"]] == ["i:2", "j"]
    assert after["spec"]["containers"][0]["terminationMessagePath"] == "/dev/termination-log"
    fields = after["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"]
    assert set(fields) == {'k:{"name":"a"}', 'k:{"name":"b"}'}
    assert set(fields['k:{"name":"a"}']["f:env"]) == {'k:{"name":"X"}', 'k:{"name":"Y"}'}


async def test_schema_of_a_custom_kind_says_how_its_lists_merge(api: Api) -> None:
    items = {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["id"],
        "items": items,
    }
    plain = {"type": "array", "items": {"type": "string"}}
    spec = {
        "type": "object",
        "properties": {"keyed": keyed, "plain": plain, "set": {**plain, "x-kubernetes-list-type": "set"}},
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    names = {"plural": "trains", "kind": "Train"}
    definition = {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": [version]}
    await api.create(CRDS, {"metadata": {"name": "trains.example.dev"}, "spec": definition})
    path = "/apis/example.dev/v1/namespaces/default/trains/t"

    def train(**fields: Any) -> dict[str, Any]:
        return {"apiVersion": "example.dev/v1", "kind": "Train", "metadata": {"name": "t"}, **fields}

    await apply(
        api, path, train(spec={"keyed": [{"id": "a", "n": 1}], "plain": ["x"], "set": ["x"]}), want=201
    )
    after = await apply(api, path, train(spec={"keyed": [{"id": "b", "n": 2}], "set": ["y"]}), "two")
    reported = await apply(api, f"{path}/status", train(status={"ok": True}), "two")
    dropped = await apply(api, path, train(spec={"plain": ["z"]}))

    assert after["spec"] == {
        "keyed": [{"id": "a", "n": 1}, {"id": "b", "n": 2}],
        "plain": ["x"],
        "set": ["x", "y"],
    }
    assert reported["status"] == {"ok": True}
    assert dropped["spec"] == {"keyed": [{"id": "b", "n": 2}], "plain": ["z"], "set": ["y"]}
    assert dropped["status"] == {"ok": True}
    kinds = {(e["manager"], e.get("subresource", "")) for e in dropped["metadata"]["managedFields"]}
    assert kinds == {("one", ""), ("two", ""), ("two", "status")}


@pytest.mark.parametrize(
    ("body", "params", "want"),
    [
        (config_map({"k": "v"}), {"manager": ""}, 422),
        ({"metadata": {"name": "a"}}, {}, 400),
        (config_map({"k": "v"}, name="b"), {}, 400),
        (config_map({"k": "v"}, managedFields=[{"manager": "x"}]), {}, 400),
        (config_map({"k": "v"}, uid="x"), {}, 409),
        ([], {}, 400),
        (b"a: [", {}, 400),
    ],
)
async def test_what_cannot_be_applied_is_refused(
    api: Api, body: Any, params: dict[str, Any], want: int
) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    await apply(api, f"{MAPS}/a", raw, want=want, **params)


async def test_dry_run_stores_nothing(api: Api) -> None:
    await apply(api, f"{MAPS}/a", config_map({"k": "v"}), want=201, dryRun="All")

    assert (await api.request("GET", f"{MAPS}/a"))[0] == 404


async def test_revision_in_the_manifest_is_a_precondition(api: Api) -> None:
    made = await apply(api, f"{MAPS}/a", config_map({"k": "1"}), want=201)
    revision = made["metadata"]["resourceVersion"]
    await apply(api, f"{MAPS}/a", config_map({"k": "2"}, resourceVersion=revision))

    await apply(api, f"{MAPS}/a", config_map({"k": "3"}, resourceVersion=revision), want=409)
