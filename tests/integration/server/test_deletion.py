"""DELETE: grace, finalizers, preconditions, collections, namespaces, eviction, binding."""

from typing import Any

import pytest

Api = Any
"""The client of conftest.py."""

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


async def is_gone(api: Api, path: str) -> bool:
    status, _ = await api.request("GET", path)
    return bool(status == 404)


async def test_plain_object_goes_at_once_and_the_answer_names_its_uid(api: Api) -> None:
    made = await api.create(MAPS, {"metadata": {"name": "a"}})

    answer = await api.delete(f"{MAPS}/a", {"propagationPolicy": "Background"})

    assert answer["kind"] == "Status" and answer["status"] == "Success"
    assert answer["details"]["uid"] == made["metadata"]["uid"]
    assert await is_gone(api, f"{MAPS}/a")


async def test_object_with_a_finalizer_waits_for_it(api: Api) -> None:
    await api.create(MAPS, {"metadata": {"name": "a", "finalizers": ["example.dev/x"]}})

    marked = await api.delete(f"{MAPS}/a")
    status, body = await api.request(
        "PATCH",
        f"{MAPS}/a",
        {"metadata": {"finalizers": ["example.dev/x", "example.dev/y"]}},
        type_="application/merge-patch+json",
    )

    assert marked["metadata"]["deletionTimestamp"]
    assert (status, body["reason"]) == (422, "Invalid")
    await api.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})
    assert await is_gone(api, f"{MAPS}/a")


@pytest.mark.parametrize(("policy", "want"), [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])])
async def test_propagation_policies_are_finalizers(api: Api, policy: str, want: list[str]) -> None:
    await api.create(MAPS, {"metadata": {"name": "a"}})

    marked = await api.delete(f"{MAPS}/a", propagationPolicy=policy)

    assert marked["metadata"]["finalizers"] == want


async def test_preconditions_hold_or_conflict(api: Api) -> None:
    made = await api.create(MAPS, {"metadata": {"name": "a"}})
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        status, body = await api.request("DELETE", f"{MAPS}/a", {"preconditions": wrong})
        assert (status, body["reason"]) == (409, "Conflict")

    right = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    await api.delete(f"{MAPS}/a", {"preconditions": right})


async def test_bound_pod_waits_for_its_node(api: Api) -> None:
    await api.create(PODS, pod("p", nodeName="n1", terminationGracePeriodSeconds=40))

    marked = await api.delete(f"{PODS}/p")
    again = await api.delete(f"{PODS}/p")
    shorter = await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})
    longer = await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 50})

    assert marked["metadata"]["deletionGracePeriodSeconds"] == 40
    assert marked["metadata"]["generation"] == 2
    assert again["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 5
    await api.delete(
        f"{PODS}/p", {"gracePeriodSeconds": 0, "preconditions": {"uid": marked["metadata"]["uid"]}}
    )
    assert await is_gone(api, f"{PODS}/p")


async def test_pod_without_a_node_and_finished_pod_go_at_once(api: Api) -> None:
    await api.create(PODS, pod("pending"))
    await api.create(PODS, pod("finished", nodeName="n1"))
    await api.patch(f"{PODS}/finished/status", {"status": {"phase": "Succeeded"}})

    for name in ("pending", "finished"):
        await api.delete(f"{PODS}/{name}")
        assert await is_gone(api, f"{PODS}/{name}")


async def test_collection_is_deleted_by_selector(api: Api) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.create(MAPS, {"metadata": {"name": name, "labels": {"app": app}}})

    gone = await api.delete(MAPS, labelSelector="app=x")

    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "b"]
    assert [item["metadata"]["name"] for item in (await api.get(MAPS))["items"]] == ["c"]


async def test_namespace_goes_when_it_is_finalized_and_takes_nothing_new(api: Api) -> None:
    made = await api.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    assert made["spec"]["finalizers"] == ["kubernetes"] and made["status"]["phase"] == "Active"
    assert made["metadata"]["labels"]["kubernetes.io/metadata.name"] == "team"

    marked = await api.delete("/api/v1/namespaces/team")
    status, body = await api.request(
        "POST", "/api/v1/namespaces/team/configmaps", {"metadata": {"name": "a"}}
    )

    assert marked["status"]["phase"] == "Terminating"
    assert (status, body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    done, _ = await api.request(
        "PUT", "/api/v1/namespaces/team/finalize", {"metadata": {"name": "team"}, "spec": {}}
    )
    assert done == 200
    assert await is_gone(api, "/api/v1/namespaces/team")


async def test_pod_is_bound_once(api: Api) -> None:
    await api.create(PODS, pod("p"))
    binding = {
        "metadata": {"name": "p", "annotations": {"gangline.dev/gpus": "{}"}},
        "target": {"kind": "Node", "name": "n1"},
    }

    status, _ = await api.request("POST", f"{PODS}/p/binding", binding)
    bound = await api.get(f"{PODS}/p")
    again, body = await api.request("POST", f"{PODS}/p/binding", binding)

    assert status == 201
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"gangline.dev/gpus": "{}"}
    conditions = {c["type"]: c["status"] for c in bound["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    assert (again, body["reason"]) == (409, "Conflict")


async def test_eviction_deletes_with_the_pods_grace(api: Api) -> None:
    await api.create(PODS, pod("p", nodeName="n1"))

    status, _ = await api.request("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})

    evicted = await api.get(f"{PODS}/p")
    assert status == 201
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 30
    (condition,) = [one for one in evicted["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_eviction_of_another_pod_than_meant_says_nothing_of_it(api: Api) -> None:
    await api.create(PODS, pod("p", nodeName="n1"))
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "other"}}}

    status, _ = await api.request("POST", f"{PODS}/p/eviction", eviction)

    assert status == 409
    kept = await api.get(f"{PODS}/p")
    assert "deletionTimestamp" not in kept["metadata"]
    assert "DisruptionTarget" not in [one["type"] for one in kept["status"].get("conditions", [])]


async def test_job_leaves_its_pods_unless_told_otherwise_and_says_so(api: Api) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    for name in ("left", "taken"):
        await api.create(jobs, {"metadata": {"name": name}, "spec": {"template": template}})

    async with api.session.delete(f"{jobs}/left") as answer:
        marked = await answer.json()
        assert "child pods are preserved by default" in answer.headers["Warning"]
    await api.delete(f"{jobs}/taken", propagationPolicy="Background")

    assert marked["metadata"]["finalizers"] == ["orphan"]
    assert await is_gone(api, f"{jobs}/taken")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{PODS}/p/binding", {"target": "n1"}),
        ("POST", f"{PODS}/p/binding", {"metadata": [], "target": {"name": "n1"}}),
        ("POST", f"{PODS}/p/eviction", {"deleteOptions": 3}),
        ("DELETE", f"{PODS}/p", {"preconditions": "x"}),
        ("DELETE", f"{PODS}/p", {"gracePeriodSeconds": "soon"}),
        ("DELETE", f"{PODS}/p", []),
        ("PUT", "/api/v1/namespaces/default/finalize", {"spec": 3}),
        ("PATCH", f"{PODS}/p", {"metadata": 3}),
        ("PATCH", f"{PODS}/p", {"spec": {"containers": {"a": 1}}}),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"groups": 3}}),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": "x"}),
    ],
)
async def test_strange_request_is_refused(api: Api, method: str, path: str, body: Any) -> None:
    await api.create(PODS, pod("p"))
    type_ = "application/merge-patch+json" if method == "PATCH" else "application/json"

    status, answer = await api.request(method, path, body, type_=type_)

    assert 400 <= status < 500, answer
