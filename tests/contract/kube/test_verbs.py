"""Create, read, change, delete, and the reasons of refusals: the same on every server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangline.api.resources import CONFIG_MAPS, JOBS, LEASES, PODS, SECRETS, SERVICES, Resource
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.discovery import resource_for
from gangline.kube.errors import AlreadyExists, ApiError, BadRequest, Conflict, Invalid, NotFound

Build = Callable[..., dict[str, Any]]


async def test_an_object_lives_from_create_to_delete(client: Client, api: Any, config_map: Build) -> None:
    made = await client.create(CONFIG_MAPS, config_map(a="1"))
    assert made["metadata"]["uid"] and made["metadata"]["creationTimestamp"]
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")

    changed = await client.update(CONFIG_MAPS, {**made, "data": {"a": "2"}})
    assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert (await client.get(CONFIG_MAPS, "cm", api.namespace))["data"] == {"a": "2"}

    answer = await client.delete(CONFIG_MAPS, "cm", api.namespace)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    with pytest.raises(NotFound) as caught:
        await client.get(CONFIG_MAPS, "cm", api.namespace)
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
    assert str(caught.value) == 'configmaps "cm" not found'
    assert caught.value.details == {"name": "cm", "kind": "configmaps"}


async def test_refusals_have_the_reasons_that_clients_act_on(
    client: Client, api: Any, config_map: Build, pod: Build
) -> None:
    made = await client.create(CONFIG_MAPS, config_map())

    with pytest.raises(AlreadyExists) as exists:
        await client.create(CONFIG_MAPS, config_map())
    await client.update(CONFIG_MAPS, {**made, "data": {"a": "1"}})
    with pytest.raises(Conflict) as conflict:
        await client.update(CONFIG_MAPS, made)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "cm", api.namespace, uid="another")
    with pytest.raises(Invalid) as invalid:
        await client.create(PODS, pod("Not a name"))
    with pytest.raises(Invalid) as no_containers:
        await client.create(PODS, pod("p", containers=[]))
    with pytest.raises(BadRequest):
        await client.create(CONFIG_MAPS, {**config_map("other"), "data": ["a"]})
    with pytest.raises(NotFound):
        await client.create(CONFIG_MAPS, {**config_map(), "metadata": {"name": "x", "namespace": "nowhere"}})
    with pytest.raises(NotFound):
        await client.get(Resource("nothing.example.dev", "v1", "things", "Thing"), "x", api.namespace)

    assert (exists.value.status, str(exists.value)) == (409, 'configmaps "cm" already exists')
    assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")
    assert 'Operation cannot be fulfilled on configmaps "cm"' in str(conflict.value)
    assert (invalid.value.status, invalid.value.reason) == (422, "Invalid")
    assert [error.path for error in invalid.value.field_errors] == ["metadata.name"]
    assert [error.path for error in no_containers.value.field_errors] == ["spec.containers"]


async def test_labels_that_break_rules_are_named(client: Client, api: Any, pod: Build) -> None:
    bad = pod()
    bad["metadata"]["labels"] = {"bad key!": "x"}

    with pytest.raises(Invalid) as refused:
        await client.create(PODS, bad)

    assert refused.value.field_errors[0].path == "metadata.labels"


async def test_patches_of_each_kind(client: Client, api: Any, pod: Build) -> None:
    await client.create(PODS, pod())

    async def patch(body: Any, **options: Any) -> dict[str, Any]:
        return await client.patch(PODS, "p", body, api.namespace, **options)

    merged = await patch({"metadata": {"labels": {"more": "1", "app": None}}})
    strategic = await patch(
        {"spec": {"containers": [{"name": "main", "image": "other:1"}]}}, kind="strategic"
    )
    replaced = await patch([{"op": "replace", "path": "/metadata/labels/more", "value": "2"}], kind="json")
    with pytest.raises(Invalid):
        await patch([{"op": "test", "path": "/metadata/labels/more", "value": "3"}], kind="json")
    with pytest.raises(Conflict):
        await patch({"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}})

    assert merged["metadata"]["labels"] == {"more": "1"}
    (container,) = strategic["spec"]["containers"]
    assert (container["image"], container["command"]) == ("other:1", ["true"])
    assert replaced["metadata"]["labels"] == {"more": "2"}


async def test_a_patch_that_names_another_uid_is_refused(client: Client, api: Any, config_map: Build) -> None:
    await client.create(CONFIG_MAPS, config_map())

    with pytest.raises(ApiError) as refused:
        await client.patch(CONFIG_MAPS, "cm", {"metadata": {"uid": "another"}}, api.namespace)

    assert refused.value.status in (409, 422)


async def test_status_is_apart_from_spec(client: Client, api: Any, pod: Build) -> None:
    made = await client.create(PODS, pod())
    assert made["status"]["phase"] == "Pending"
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

    reported = await client.patch(
        PODS,
        "p",
        {"metadata": {"labels": {"app": "y"}}, "status": status},
        api.namespace,
        subresource="status",
    )
    through_spec = await client.patch(PODS, "p", {"status": {"phase": "Failed"}}, api.namespace)

    assert reported["status"]["phase"] == "Running"
    assert "Ready" in [condition["type"] for condition in reported["status"]["conditions"]]
    assert through_spec["status"]["phase"] == "Running"


async def test_an_unchanged_write_keeps_the_version(client: Client, api: Any, config_map: Build) -> None:
    empty = {"labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}
    wanted = config_map(a="1")
    made = await client.create(CONFIG_MAPS, {**wanted, "metadata": {**wanted["metadata"], **empty}})
    assert not empty.keys() & made["metadata"].keys()

    same = await client.patch(CONFIG_MAPS, "cm", {"data": {"a": "1"}}, api.namespace)
    again = await client.update(CONFIG_MAPS, same)

    versions = {one["metadata"]["resourceVersion"] for one in (made, same, again)}
    assert len(versions) == 1


async def test_a_spec_counts_generations_and_a_status_does_not(client: Client, api: Any, pod: Build) -> None:
    template = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": api.namespace},
        "spec": {"suspend": True, "template": template},
    }
    made = await client.create(JOBS, job)

    relabelled = await client.patch(JOBS, "j", {"metadata": {"labels": {"a": "b"}}}, api.namespace)
    changed = await client.patch(JOBS, "j", {"spec": {"parallelism": 0}}, api.namespace)
    with pytest.raises(Invalid) as refused:
        await client.patch(JOBS, "j", {"spec": {"completions": 5}}, api.namespace)

    assert [one["metadata"]["generation"] for one in (made, relabelled, changed)] == [1, 1, 2]
    assert refused.value.field_errors[0].path == "spec.completions"


async def test_defaults_that_controllers_rely_on(client: Client, api: Any, pod: Build) -> None:
    made = await client.create(PODS, pod())
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": api.namespace},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}},
    }
    headless = await client.create(SERVICES, service)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": api.namespace},
        "stringData": {"a": "b"},
    }
    opaque = await client.create(SECRETS, secret)

    spec = made["spec"]
    assert (spec["restartPolicy"], spec["dnsPolicy"]) == ("Always", "ClusterFirst")
    assert (spec["terminationGracePeriodSeconds"], spec["enableServiceLinks"]) == (30, True)
    assert made["status"]["qosClass"] == "BestEffort"
    assert headless["spec"]["clusterIPs"] == ["None"]
    assert (opaque["type"], opaque["data"], "stringData" in opaque) == ("Opaque", {"a": "Yg=="}, False)


async def test_generated_names_and_dry_runs(client: Client, api: Any, config_map: Build) -> None:
    generated = config_map()
    generated["metadata"] = {"generateName": "made-", "namespace": api.namespace}

    made = await client.create(CONFIG_MAPS, generated)
    await client.create(CONFIG_MAPS, config_map("dry"), dry_run=True)

    assert made["metadata"]["name"].startswith("made-")
    assert len(made["metadata"]["name"]) == len("made-") + 5
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "dry", api.namespace)


async def test_finalizers_hold_an_object_until_they_are_gone(
    client: Client, api: Any, config_map: Build
) -> None:
    held = config_map()
    held["metadata"]["finalizers"] = ["gangline.dev/test"]
    await client.create(CONFIG_MAPS, held)

    going = await client.delete(CONFIG_MAPS, "cm", api.namespace)
    still = await client.get(CONFIG_MAPS, "cm", api.namespace)
    await client.patch(CONFIG_MAPS, "cm", {"metadata": {"finalizers": None}}, api.namespace)

    assert "deletionTimestamp" in still["metadata"]
    assert going["metadata"]["uid"] == still["metadata"]["uid"]
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "cm", api.namespace)


async def test_binding_sets_the_node_once(client: Client, api: Any, pod: Build) -> None:
    await client.create(PODS, pod())
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": api.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }

    await client.create_subresource(PODS, "p", "binding", body, api.namespace)
    with pytest.raises(Conflict):
        await client.create_subresource(PODS, "p", "binding", body, api.namespace)

    bound = await client.get(PODS, "p", api.namespace)
    assert bound["spec"]["nodeName"] == "n"
    scheduled = {c["type"]: c["status"] for c in bound["status"]["conditions"]}
    assert scheduled["PodScheduled"] == "True"
    await client.delete(PODS, "p", api.namespace, grace_period_s=0)


async def test_leases_take_micro_times_and_refuse_nonsense(client: Client, api: Any) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": api.namespace},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000001Z",
        },
    }

    made = await client.create(LEASES, lease)
    with pytest.raises(Invalid) as refused:
        await client.patch(LEASES, "l", {"spec": {"leaseDurationSeconds": 0}}, api.namespace)

    assert made["spec"] == lease["spec"]
    assert refused.value.field_errors[0].path == "spec.leaseDurationSeconds"


async def test_our_apply_creates_changes_and_leaves_alone(
    client: Client, api: Any, config_map: Build
) -> None:
    verbs = [
        (await apply(client, CONFIG_MAPS, config_map(a="1", b="2")))[0],
        (await apply(client, CONFIG_MAPS, config_map(a="1", b="2")))[0],
    ]
    await client.patch(CONFIG_MAPS, "cm", {"data": {"theirs": "3"}}, api.namespace)
    verb, result = await apply(client, CONFIG_MAPS, config_map(a="1"))

    assert [*verbs, verb] == ["created", "unchanged", "configured"]
    assert result["data"] == {"a": "1", "theirs": "3"}


@pytest.mark.parametrize("manifest", ["pod", "service"])
async def test_our_apply_finds_defaulted_objects_unchanged(
    client: Client, api: Any, pod: Build, manifest: str
) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": api.namespace},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}},
    }
    obj, resource = (pod(), PODS) if manifest == "pod" else (service, SERVICES)

    verbs = [(await apply(client, resource, obj))[0] for _ in range(2)]

    assert verbs == ["created", "unchanged"]


async def test_apply_on_the_server_owns_fields(client: Client, api: Any, config_map: Build) -> None:
    async def applied(manager: str, **data: str) -> dict[str, Any]:
        return await client.patch(
            CONFIG_MAPS, "cm", config_map(**data), api.namespace, kind="apply", field_manager=manager
        )

    await applied("one", a="1", b="2")
    with pytest.raises(Conflict) as clash:
        await applied("two", a="9")
    shared = await applied("two", c="3")
    dropped = await applied("one", a="1")

    assert clash.value.details["causes"][0]["field"] == ".data.a"
    assert shared["data"] == {"a": "1", "b": "2", "c": "3"}
    assert dropped["data"] == {"a": "1", "c": "3"}


async def test_kinds_are_found_by_asking(client: Client) -> None:
    found = await resource_for(client, "authentication.k8s.io/v1", "TokenReview")

    assert (found.plural, found.namespaced) == ("tokenreviews", False)


async def test_a_service_gives_its_address_back_with_its_type_and_takes_one(client: Client, api: Any) -> None:
    spec = {"ports": [{"port": 80, "protocol": "TCP"}], "selector": {"a": "b"}}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": api.namespace}}
    made = await client.create(SERVICES, {**body, "spec": spec})
    assert made["spec"]["clusterIP"]

    outside = {**made["spec"], "type": "ExternalName", "externalName": "data.example"}
    named = await client.update(SERVICES, {**made, "spec": outside})
    assert not {"clusterIP", "clusterIPs"} & set(named["spec"])

    again = await client.update(SERVICES, {**named, "spec": {**named["spec"], "type": "ClusterIP"}})
    assert again["spec"]["clusterIPs"] == [again["spec"]["clusterIP"]]
