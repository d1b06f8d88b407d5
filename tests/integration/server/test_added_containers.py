"""Containers that are added to pods by ephemeralcontainers. Expected: kube-apiserver's validation."""

from typing import Any

import pytest

Api = Any
"""The client of conftest.py."""

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "gangline/base"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


DEBUGGER = {"name": "debug", "image": "gangline/base", "command": ["sh"], "targetContainerName": "main"}


async def test_containers_are_added_to_a_pod_by_their_subresource_alone(api: Api) -> None:
    await api.create(PODS, pod("p"))
    status, refused = await api.request("POST", PODS, pod("q", ephemeralContainers=[DEBUGGER]))
    assert (status, "spec.ephemeralContainers" in refused["message"]) == (422, True)
    added = {"spec": {"nodeName": "n9", "ephemeralContainers": [DEBUGGER]}}

    status, after = await api.request(
        "PATCH",
        f"{PODS}/p/ephemeralcontainers",
        added,
        headers={"Content-Type": "application/strategic-merge-patch+json"},
    )

    assert status == 200, after
    assert [one["name"] for one in after["spec"]["ephemeralContainers"]] == ["debug"]
    assert "nodeName" not in after["spec"]  # only the containers are taken
    assert after["metadata"]["generation"] == 2
    assert await api.get(f"{PODS}/p/ephemeralcontainers") == after
    grown = {**after["spec"], "tolerations": [*after["spec"]["tolerations"], {"operator": "Exists"}]}
    assert (await api.request("PUT", f"{PODS}/p", {**after, "spec": grown}))[0] == 200


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"name": "main"}, "spec.ephemeralContainers[1].name"),
        ({"resources": {"limits": {"cpu": "1"}}}, "spec.ephemeralContainers[1].resources"),
        ({"livenessProbe": {"exec": {"command": ["true"]}}}, "spec.ephemeralContainers[1].livenessProbe"),
        ({"targetContainerName": "other"}, "spec.ephemeralContainers[1].targetContainerName"),
        ({"image": ""}, "spec.ephemeralContainers[1].image"),
    ],
)
async def test_added_container_is_refused_with_the_place(
    api: Api, change: dict[str, Any], place: str
) -> None:
    await api.create(PODS, pod("p"))
    path = f"{PODS}/p/ephemeralcontainers"
    found = await api.get(path)
    found["spec"]["ephemeralContainers"] = [DEBUGGER]
    status, found = await api.request("PUT", path, found)
    assert status == 200, found

    both = [*found["spec"]["ephemeralContainers"], {**DEBUGGER, "name": "second", **change}]
    status, answer = await api.request(
        "PUT", path, {**found, "spec": {**found["spec"], "ephemeralContainers": both}}
    )

    assert status == 422 and place in answer["message"], answer


async def test_added_container_stays_as_it_is(api: Api) -> None:
    await api.create(PODS, pod("p"))
    path = f"{PODS}/p/ephemeralcontainers"
    found = await api.get(path)
    found["spec"]["ephemeralContainers"] = [DEBUGGER]
    _, found = await api.request("PUT", path, found)

    for kept in ([], [{**DEBUGGER, "image": "gangline/torch"}]):
        body = {**found, "spec": {**found["spec"], "ephemeralContainers": kept}}
        status, answer = await api.request("PUT", path, body)
        assert status == 422 and "may not be" in answer["message"], answer
