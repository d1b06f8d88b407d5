"""``metadata.managedFields`` after ordinary writes, and what server-side apply makes of them.

Source: the server-side apply documentation of Kubernetes ("Field management").
"""

from typing import Any

Api = Any
"""The client of conftest.py."""

APPLY = "application/apply-patch+yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def config_map(data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}, "data": data}


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "a"}
    container = {"name": "main", "image": "busybox"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def managers(obj: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in obj["metadata"]["managedFields"]
    }


async def create(api: Api, path: str, body: dict[str, Any], manager: str) -> Any:
    status, made = await api.request("POST", path, body, fieldManager=manager)
    assert status == 201, made
    return made


async def test_creator_owns_every_field_and_the_name_of_its_program_will_do(api: Api) -> None:
    made = await create(api, MAPS, config_map({"k": "v"}, labels={"x": "y"}), "kubectl-create")
    other = await api.create(MAPS, {"metadata": {"name": "b"}, "data": {"k": "v"}})

    fields = {"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}
    assert managers(made) == {("kubectl-create", "Update", ""): fields}
    assert managers(other) == {("Python", "Update", ""): {"f:data": {"f:k": {}}}}


async def test_writing_a_field_takes_it_from_whoever_had_it(api: Api) -> None:
    await create(api, MAPS, config_map({"k": "v", "other": "1"}), "one")
    patched = await api.patch(f"{MAPS}/a", {"data": {"k": "w", "other": None}}, fieldManager="two")

    assert managers(patched) == {("two", "Update", ""): {"f:data": {"f:k": {}}}}


async def test_applying_over_a_creators_field_is_a_conflict_and_force_takes_it(api: Api) -> None:
    await create(api, DEPLOYMENTS, deployment(1), "kubectl-create")
    path = f"{DEPLOYMENTS}/a"

    status, failure = await api.request("PATCH", path, deployment(2), type_=APPLY, fieldManager="two")
    same, _ = await api.request("PATCH", path, deployment(1), type_=APPLY, fieldManager="two")
    forced, after = await api.request(
        "PATCH", path, deployment(2), type_=APPLY, fieldManager="two", force="true"
    )

    assert (status, same, forced) == (409, 200, 200)
    (cause,) = failure["details"]["causes"]
    assert cause["field"] == ".spec.replicas"
    assert cause["message"].startswith('conflict with "kubectl-create" using apps/v1 at ')
    owned = managers(after)
    assert "f:replicas" not in owned["kubectl-create", "Update", ""]["f:spec"]
    assert "f:replicas" in owned["two", "Apply", ""]["f:spec"]


async def test_scale_and_status_are_parts_of_their_own(api: Api) -> None:
    await create(api, DEPLOYMENTS, deployment(1), "kubectl-create")
    await api.patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 3}}, fieldManager="scaler")
    after = await api.patch(f"{DEPLOYMENTS}/a/status", {"status": {"replicas": 3}}, fieldManager="controller")

    owned = managers(after)
    assert owned["scaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    assert owned["controller", "Update", "status"] == {"f:status": {"f:replicas": {}}}
    assert "f:status" not in owned["kubectl-create", "Update", ""]


async def test_items_of_a_list_are_named_by_their_keys(api: Api) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}

    made = await create(api, PODS, pod, "one")

    containers = managers(made)["one", "Update", ""]["f:spec"]["f:containers"]
    assert containers['k:{"name":"main"}'].keys() >= {".", "f:name", "f:image"}


async def test_who_sends_entries_decides_and_an_empty_one_forgets_all(api: Api) -> None:
    made = await create(api, MAPS, config_map({"k": "v"}), "kubectl-client-side-apply")
    entry = {**made["metadata"]["managedFields"][0], "manager": "kubectl", "operation": "Apply"}
    moved = [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]
    forget = [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]

    _, after = await api.request("PATCH", f"{MAPS}/a", moved, type_="application/json-patch+json")
    _, empty = await api.request("PATCH", f"{MAPS}/a", forget, type_="application/json-patch+json")

    assert managers(after) == {("kubectl", "Apply", ""): {"f:data": {"f:k": {}}}}
    assert "managedFields" not in empty["metadata"]


async def test_writers_without_end_are_joined(api: Api) -> None:
    await create(api, MAPS, config_map({"k": "v"}), "first")
    for number in range(15):
        after = await api.patch(f"{MAPS}/a", {"data": {f"k{number}": "v"}}, fieldManager=f"m{number}")

    owned = managers(after)
    assert len(owned) == 10
    assert {"f:k", "f:k0", "f:k4"} <= owned["ancient-changes", "Update", ""]["f:data"].keys()
