"""Create, read, update, patch, delete over HTTP. Expected values: the conventions of the Kubernetes API."""

import asyncio
import re
from typing import Any

import pytest

from gangline.cluster.server.store import events
from gangline.cluster.server.verbs import reading

Api = Any
"""The client of conftest.py."""

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NODE = {"metadata": {"name": "n1"}}


def config_map(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "gangline/base"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


async def test_created_object_gets_identity_and_times(api: Api) -> None:
    made = await api.create(MAPS, config_map("a", data={"k": "v"}))

    meta = made["metadata"]
    assert meta["name"] == "a" and meta["namespace"] == "default"
    assert re.fullmatch(r"[0-9a-f-]{36}", meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert int(meta["resourceVersion"]) > 0
    assert await api.get(f"{MAPS}/a") == made


async def test_create_of_an_existing_name_is_already_exists(api: Api) -> None:
    await api.create(MAPS, config_map("a"))

    status, body = await api.request("POST", MAPS, config_map("a"))

    assert (status, body["reason"]) == (409, "AlreadyExists")
    assert body["message"] == 'configmaps "a" already exists'


@pytest.mark.parametrize(
    ("change", "want_code"),
    [
        pytest.param({"metadata": {"name": "a", "resourceVersion": "5"}}, 400, id="with a resourceVersion"),
        pytest.param({"metadata": {"name": "a", "namespace": "other"}}, 400, id="in another namespace"),
        pytest.param({"metadata": {}}, 422, id="without a name"),
        pytest.param({"kind": "Secret"}, 400, id="of another kind"),
    ],
)
async def test_create_refuses(api: Api, change: dict[str, Any], want_code: int) -> None:
    status, body = await api.request("POST", MAPS, {**config_map("a"), **change})

    assert status == want_code == body["code"]


async def test_create_in_a_namespace_that_is_not_there_is_not_found(api: Api) -> None:
    status, body = await api.request("POST", "/api/v1/namespaces/no/configmaps", config_map("a"))

    assert (status, body["message"]) == (404, 'namespaces "no" not found')


async def test_generate_name_adds_five_characters(api: Api) -> None:
    body = {"metadata": {"generateName": "run-"}}

    names = {(await api.create(MAPS, body))["metadata"]["name"] for _ in range(5)}

    assert len(names) == 5
    assert all(re.fullmatch(r"run-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


async def test_missing_object_and_missing_path_differ(api: Api) -> None:
    _, missing = await api.request("GET", f"{MAPS}/no")
    _, unknown = await api.request("GET", "/api/v1/namespaces/default/nothings/x")

    assert missing["code"] == unknown["code"] == 404
    assert missing["details"] == {"name": "no", "kind": "configmaps"}
    assert "details" not in unknown


async def test_put_with_an_old_revision_is_a_conflict_and_without_one_wins(api: Api) -> None:
    old = await api.create(MAPS, config_map("a", data={"n": "0"}))
    await api.patch(f"{MAPS}/a", {"data": {"n": "1"}})

    status, body = await api.request("PUT", f"{MAPS}/a", old)
    unconditional = await api.request("PUT", f"{MAPS}/a", config_map("a", data={"n": "2"}))

    assert (status, body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in body["message"]
    assert unconditional[0] == 200 and unconditional[1]["data"] == {"n": "2"}


async def test_put_of_another_uid_is_a_conflict(api: Api) -> None:
    await api.create(MAPS, config_map("a"))

    status, body = await api.request(
        "PUT", f"{MAPS}/a", {**config_map("a"), "metadata": {"name": "a", "uid": "other"}}
    )

    assert (status, body["reason"]) == (409, "Conflict")


async def test_write_that_changes_nothing_gets_no_revision_and_no_event(api: Api) -> None:
    made = await api.create(MAPS, config_map("a", data={"k": "v"}))

    patched = await api.patch(f"{MAPS}/a", {"data": {"k": "v"}, "metadata": {"labels": None}})
    _, replaced = await api.request("PUT", f"{MAPS}/a", made)

    assert patched == replaced == made
    listing = await api.get(MAPS)
    assert listing["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_identity_cannot_be_changed(api: Api) -> None:
    made = await api.create(MAPS, config_map("a"))

    after = await api.patch(
        f"{MAPS}/a",
        {"metadata": {"creationTimestamp": "2000-01-01T00:00:00Z", "generation": 7, "labels": {"x": "y"}}},
    )

    assert after["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert "generation" not in after["metadata"]
    assert after["metadata"]["labels"] == {"x": "y"}


async def test_patches_of_every_type(api: Api) -> None:
    await api.create(PODS, pod("p", nodeName="n1"))

    merged = await api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "1"}}})
    by_path = await api.patch(
        f"{PODS}/p", [{"op": "replace", "path": "/metadata/labels/a", "value": "2"}], api.JSON_PATCH
    )
    strategic = await api.patch(
        f"{PODS}/p", {"spec": {"containers": [{"name": "main", "image": "other"}]}}, api.STRATEGIC
    )

    assert merged["metadata"]["labels"] == {"a": "1"}
    assert by_path["metadata"]["labels"] == {"a": "2"}
    assert [c["name"] for c in strategic["spec"]["containers"]] == ["main"]
    assert strategic["spec"]["containers"][0]["image"] == "other"


async def test_failing_json_patch_is_unprocessable_and_changes_nothing(api: Api) -> None:
    made = await api.create(MAPS, config_map("a", data={"k": "v"}))

    status, body = await api.request(
        "PATCH", f"{MAPS}/a", [{"op": "test", "path": "/data/k", "value": "x"}], type_=api.JSON_PATCH
    )

    assert (status, body["reason"]) == (422, "Invalid")
    assert await api.get(f"{MAPS}/a") == made


async def test_patch_with_a_revision_is_a_precondition(api: Api) -> None:
    made = await api.create(MAPS, config_map("a"))
    await api.patch(f"{MAPS}/a", {"data": {"n": "1"}})

    revision = made["metadata"]["resourceVersion"]
    status, body = await api.request(
        "PATCH",
        f"{MAPS}/a",
        {"metadata": {"resourceVersion": revision}, "data": {"n": "2"}},
        type_="application/merge-patch+json",
    )

    assert (status, body["reason"]) == (409, "Conflict")


async def test_patches_at_once_all_take_effect(api: Api) -> None:
    await api.create(MAPS, config_map("a"))

    await asyncio.gather(*(api.patch(f"{MAPS}/a", {"data": {f"k{n}": "v"}}) for n in range(40)))

    assert len((await api.get(f"{MAPS}/a"))["data"]) == 40


async def test_unknown_media_types_are_named(api: Api) -> None:
    status, body = await api.request("POST", MAPS, b"x", type_="text/csv")
    patch_status, patch_body = await api.request("PATCH", f"{MAPS}/a", b"x", type_="text/csv")
    get_status, _ = await api.request("GET", MAPS, accept="application/vnd.kubernetes.protobuf")

    assert (status, body["reason"]) == (415, "UnsupportedMediaType")
    assert "accepted media types include: application/json" in body["message"]
    assert patch_status == 415 and "merge-patch+json" in patch_body["message"]
    assert get_status == 406


async def test_yaml_body_is_read(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {a: 'yes'}\n"

    made = await api.create(MAPS, text, type_="application/yaml")

    assert made["data"] == {"a": "yes"}


async def test_body_that_is_too_long_is_refused(api: Api) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"k":"' + b"x" * (3 << 20) + b'"}}'

    status, answer = await api.request("POST", MAPS, body)

    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize("body", [b"{", b"[]", b"3", b""])
async def test_body_that_is_no_object_is_a_bad_request(api: Api, body: bytes) -> None:
    status, answer = await api.request("POST", MAPS, body)

    assert (status, answer["reason"]) == (400, "BadRequest")


async def test_dry_run_stores_nothing(api: Api) -> None:
    await api.create(MAPS, config_map("a", data={"n": "0"}))

    made = await api.create(MAPS, config_map("b"), dryRun="All")
    patched = await api.patch(f"{MAPS}/a", {"data": {"n": "1"}}, dryRun="All")
    await api.delete(f"{MAPS}/a", dryRun="All")

    assert made["metadata"]["uid"] and patched["data"] == {"n": "1"}
    assert [item["data"] for item in (await api.get(MAPS))["items"]] == [{"n": "0"}]
    status, _ = await api.request("POST", MAPS, config_map("c"), dryRun="Some")
    assert status == 400


async def test_generation_counts_wishes_and_status_lives_apart(api: Api) -> None:
    made = await api.create(PODS, pod("p", activeDeadlineSeconds=100, nodeName="n1"))

    labelled = await api.patch(
        f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Failed"}}
    )
    wished = await api.patch(f"{PODS}/p", {"spec": {"activeDeadlineSeconds": 50}})
    reported = await api.patch(
        f"{PODS}/p/status", {"spec": {"activeDeadlineSeconds": 1}, "status": {"phase": "Running"}}
    )

    assert made["metadata"]["generation"] == labelled["metadata"]["generation"] == 1
    assert labelled["status"]["phase"] == "Pending"
    assert wished["metadata"]["generation"] == reported["metadata"]["generation"] == 2
    assert reported["status"]["phase"] == "Running"
    assert reported["spec"]["activeDeadlineSeconds"] == 50


async def test_list_selects_by_labels_and_fields(api: Api) -> None:
    for name, labels in (("a", {"app": "x"}), ("b", {"app": "y"}), ("c", {})):
        await api.create(MAPS, {"metadata": {"name": name, "labels": labels}})

    async def names(**params: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await api.get("/api/v1/configmaps", **params))["items"]]

    assert await names(labelSelector="app in (x,y)") == ["a", "b"]
    assert await names(labelSelector="app!=x") == ["b", "c"]
    assert await names(fieldSelector="metadata.name=b") == ["b"]
    assert await names(fieldSelector="metadata.name=b,metadata.namespace=other") == []
    assert await names(labelSelector="!app", fieldSelector="metadata.name!=a") == ["c"]
    for params in ({"labelSelector": "a in ("}, {"fieldSelector": "data.x=1"}):
        status, body = await api.request("GET", MAPS, **params)
        assert (status, body["reason"]) == (400, "BadRequest")


async def test_pages_together_are_the_list_and_carry_the_first_revision(api: Api) -> None:
    for n in range(7):
        await api.create(MAPS, config_map(f"m{n}"))
    names, token, revisions = [], "", set()
    while True:
        page = await api.get(MAPS, limit=3, **({"continue": token} if token else {}))
        names += [item["metadata"]["name"] for item in page["items"]]
        revisions.add(page["metadata"]["resourceVersion"])
        if not token:
            assert page["metadata"]["remainingItemCount"] == 4
            await api.create(MAPS, config_map("m0-later"))
        token = page["metadata"].get("continue", "")
        if not token:
            break

    assert names == [f"m{n}" for n in range(7)]
    assert len(revisions) == 1
    assert len((await api.get(MAPS, limit=3, resourceVersion="0"))["items"]) == 8
    status, _ = await api.request("GET", MAPS, limit=3, **{"continue": "nonsense"})
    assert status == 400


async def test_the_rest_of_a_list_whose_revision_is_gone_is_had_from_the_present(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "RING_CHANGES_MAX", 2)
    for n in range(5):
        await api.create(MAPS, config_map(f"m{n}"))
    first = await api.get(MAPS, limit=2)
    for n in range(5, 8):
        await api.create(MAPS, config_map(f"m{n}"))

    status, gone = await api.request("GET", MAPS, limit=2, **{"continue": first["metadata"]["continue"]})
    assert (status, gone["reason"]) == (410, "Expired")
    second = await api.get(MAPS, limit=2, **{"continue": gone["metadata"]["continue"]})
    third = await api.get(MAPS, limit=4, **{"continue": second["metadata"]["continue"]})

    names = [item["metadata"]["name"] for page in (second, third) for item in page["items"]]
    assert names == ["m2", "m3", "m4", "m5", "m6", "m7"]
    revisions = [page["metadata"]["resourceVersion"] for page in (first, second, third)]
    assert revisions[0] != revisions[1] == revisions[2]


async def test_a_list_is_read_within_five_minutes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(2):
        await api.create(MAPS, config_map(f"m{n}"))
    token = {"continue": (await api.get(MAPS, limit=1))["metadata"]["continue"]}

    monkeypatch.setattr(reading, "LIST_LIFETIME_S", -1)
    status, _ = await api.request("GET", MAPS, limit=1, **token)
    assert status == 410


async def test_keys_that_stand_twice_are_named(api: Api) -> None:
    body = b'{"metadata":{"name":"m"},"data":{"a":"1","b":"2","a":"3"},"bogus":1}'
    path = f"{MAPS}?fieldValidation="
    headers = {"Content-Type": "application/json"}
    async with api.session.post(f"{path}Strict", data=body, headers=headers) as answer:
        said = (await answer.json())["message"]
        assert answer.status == 400
        assert said.endswith('strict decoding error: unknown field "bogus", duplicate field "data.a"')
    async with api.session.post(f"{path}Warn", data=body, headers=headers) as answer:
        assert answer.status == 201
        assert (await answer.json())["data"] == {"a": "3", "b": "2"}
        assert '299 - "duplicate field \\"data.a\\""' in answer.headers.getall("Warning")


async def test_a_question_has_no_table(api: Api) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    async with api.session.post(path, json={"spec": {}}, headers=headers) as answer:
        assert answer.status == 406


async def test_revision_of_the_future_is_a_timeout(api: Api) -> None:
    status, body = await api.request("GET", MAPS, resourceVersion="999999")

    assert (status, body["reason"]) == (504, "Timeout")
    assert body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_methods_that_do_not_fit_are_named(api: Api) -> None:
    for method, path in (
        ("PUT", MAPS),
        ("POST", f"{MAPS}/a"),
        ("OPTIONS", MAPS),
        ("DELETE", f"{PODS}/p/log"),
    ):
        status, _ = await api.request(method, path, None)
        assert status == 405, path
    status, body = await api.request("PATCH", f"{PODS}/p/resize", {})
    assert (status, body["reason"]) == (501, "NotImplemented")
    assert "pods/resize" in body["message"]


async def test_what_a_pod_asks_for_in_vain_is_answered_with_a_warning_by_every_write(api: Api) -> None:
    asked = pod("p", hostUsers=False)
    warning = '299 - "spec.hostUsers: pods share the user namespace of the node agent"'
    apply = {"Content-Type": "application/apply-patch+yaml"}

    async with api.session.post(PODS, json=asked) as answer:
        assert (answer.status, answer.headers.get("Warning")) == (201, warning)
    async with api.session.put(f"{PODS}/p", json=await api.get(f"{PODS}/p")) as answer:
        assert answer.status == 200 and warning in answer.headers.getall("Warning")
    async with api.session.patch(
        f"{PODS}/q?fieldManager=m", json=pod("q", hostUsers=False), headers=apply
    ) as answer:
        assert (answer.status, answer.headers.get("Warning")) == (201, warning)
    merge = {"Content-Type": "application/merge-patch+json"}
    async with api.session.patch(
        f"{PODS}/p", json={"metadata": {"labels": {"a": "b"}}}, headers=merge
    ) as answer:
        assert (answer.status, answer.headers.get("Warning")) == (200, None)


async def test_what_is_refused_of_a_pod_is_refused_in_a_job_too(api: Api) -> None:
    spec = {**pod("p", hostPID=True)["spec"], "restartPolicy": "Never"}
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}

    status, body = await api.request("POST", "/apis/batch/v1/namespaces/default/jobs", job)

    assert (status, body["details"]["causes"]) == (
        422,
        [
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: is not served by the one-machine cluster",
                "field": "spec.template.spec.hostPID",
            }
        ],
    )


async def test_tolerations_of_lost_nodes_come_back_when_an_update_lacks_them(api: Api) -> None:
    made = await api.create(PODS, pod("p"))
    own = {"key": "mine", "operator": "Exists"}

    status, after = await api.request(
        "PUT", f"{PODS}/p", {**made, "spec": {**made["spec"], "tolerations": [own]}}
    )

    assert status == 200, after
    assert {one["key"] for one in after["spec"]["tolerations"]} == {
        "mine",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


async def test_an_address_belongs_to_one_service(api: Api) -> None:
    """Two with one address would make the rules of all services fail."""
    services = "/api/v1/namespaces/default/services"

    def service(name: str) -> dict[str, object]:
        return {"metadata": {"name": name}, "spec": {"clusterIP": "10.96.9.9", "ports": [{"port": 80}]}}

    made = await api.create(services, service("one"))
    status, refused = await api.request("POST", services, service("two"))
    assert (status, refused["details"]["causes"][0]["field"]) == (422, "spec.clusterIPs[0]")
    assert "provided IP is already allocated" in refused["message"]
    status, _ = await api.request("PUT", f"{services}/one", made)
    assert status == 200
