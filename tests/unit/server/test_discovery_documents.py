"""Served rows, discovery and OpenAPI; what clients look for in them is listed in the API reference."""

import json

import pytest

from gangline.cluster.server.resources import BUILT_IN_SERVED, crd_served, version_priority
from gangline.cluster.server.wire import discovery, openapi, openapi_v2, protobuf

CRD = {
    "metadata": {"name": "mpijobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "scope": "Namespaced",
        "names": {"plural": "mpijobs", "kind": "MPIJob", "shortNames": ["mj"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": False,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            },
            {"name": "v1alpha1", "served": False, "storage": False},
            {
                "name": "v2beta1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
                "additionalPrinterColumns": [{"name": "A", "type": "date", "jsonPath": ".a"}],
                "selectableFields": [{"jsonPath": ".spec.x"}],
            },
        ],
    },
}


def test_crd_gives_a_row_for_each_served_version_best_first():
    v1, v2beta1 = crd_served(CRD)

    assert [v1.resource.version, v2beta1.resource.version] == ["v1", "v2beta1"]
    assert v2beta1.subresources == {"status", "scale"}
    assert (v2beta1.storage_version, v2beta1.selectable_fields) == (True, ("spec.x",))
    assert (v2beta1.list_kind, v2beta1.singular, v2beta1.storage_group) == (
        "MPIJobList",
        "mpijob",
        "kubeflow.org",
    )
    assert v2beta1.scale_paths == {"specReplicasPath": ".spec.n"}


def test_deprecated_versions_are_served_behind_the_others():
    v1, v2beta1 = (version for version in CRD["spec"]["versions"] if version["served"])
    spec = {**CRD["spec"], "versions": [{**v1, "deprecated": True}, v2beta1]}

    rows = crd_served({"spec": spec})

    assert [row.resource.version for row in rows] == ["v2beta1", "v1"]
    assert [row.deprecation for row in rows] == ["", "kubeflow.org/v1 MPIJob is deprecated"]
    group = discovery.api_group(rows, "kubeflow.org")
    assert group is not None
    assert group["preferredVersion"]["version"] == "v2beta1"


def test_incomplete_crd_gives_no_rows():
    assert crd_served({"spec": {"group": "x"}}) == []


def test_versions_are_ranked_as_clients_expect():
    ranked = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1"]

    assert ranked == sorted(set(ranked), key=version_priority, reverse=True)


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_aggregated_discovery_has_everything_in_two_documents(version):
    rows = [*BUILT_IN_SERVED, *crd_served(CRD)]
    core = discovery.aggregated(rows, core=True, version=version)
    named = discovery.aggregated(rows, core=False, version=version)

    assert core["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    assert core["items"][0]["metadata"] == {}
    pods = next(r for r in core["items"][0]["versions"][0]["resources"] if r["resource"] == "pods")
    assert (pods["shortNames"], pods["scope"], pods["categories"]) == (["po"], "Namespaced", ["all"])
    assert {s["subresource"] for s in pods["subresources"]} == {
        "attach",
        "binding",
        "ephemeralcontainers",
        "eviction",
        "exec",
        "log",
        "portforward",
        "proxy",
        "status",
    }
    group = next(item for item in named["items"] if item["metadata"]["name"] == "kubeflow.org")
    assert [v["version"] for v in group["versions"]] == ["v1", "v2beta1"]
    scale = group["versions"][1]["resources"][0]["subresources"][0]
    assert scale["responseKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}


def test_legacy_discovery_says_the_same():
    rows = [*BUILT_IN_SERVED, *crd_served(CRD)]

    groups = {group["name"]: group for group in discovery.api_group_list(rows)["groups"]}
    assert groups["kubeflow.org"]["preferredVersion"]["version"] == "v1"
    resources = discovery.api_resource_list(rows, "kubeflow.org", "v2beta1")["resources"]
    assert [r["name"] for r in resources] == ["mpijobs", "mpijobs/scale", "mpijobs/status"]
    assert resources[1]["group"] == "autoscaling"
    assert discovery.api_group(rows, "nope") is None
    assert discovery.api_resource_list(rows, "", "v9") is None
    assert discovery.api_group(rows, "batch")["kind"] == "APIGroup"
    assert discovery.api_versions("127.0.0.1:1")["versions"] == ["v1"]


def test_index_names_every_group_and_version_and_its_hash_follows_the_rows():
    plain, with_crd = openapi.index(BUILT_IN_SERVED), openapi.index([*BUILT_IN_SERVED, *crd_served(CRD)])

    assert plain["paths"]["api/v1"] == with_crd["paths"]["api/v1"]
    assert "apis/kubeflow.org/v2beta1" in with_crd["paths"]
    assert with_crd["paths"]["api/v1"]["serverRelativeURL"].startswith("/openapi/v3/api/v1?hash=")


@pytest.mark.parametrize(
    "row", [r for r in BUILT_IN_SERVED if "patch" in r.verbs], ids=lambda row: row.resource.kind
)
def test_document_lets_kubectl_leave_validation_to_the_server(row):
    document = openapi.document(BUILT_IN_SERVED, row.resource.root.strip("/"))

    kinds = [
        path["patch"]["x-kubernetes-group-version-kind"]["kind"]
        for path in document["paths"].values()
        if "patch" in path and "fieldValidation" in {p["name"] for p in path["patch"]["parameters"]}
    ]
    assert row.resource.kind in kinds


def references(value):
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str):  # a CRD's own schema has a field of that name
                yield item
            else:
                yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_reference_of_a_document_leads_somewhere():
    for root in ("api/v1", "apis/batch/v1", "apis/kubeflow.org/v2beta1"):
        document = openapi.document([*BUILT_IN_SERVED, *crd_served(CRD)], root)
        schemas = document["components"]["schemas"]

        assert {name.removeprefix("#/components/schemas/") for name in references(document)} <= schemas.keys()


def test_document_of_what_is_not_served_is_none():
    assert openapi.document(BUILT_IN_SERVED, "apis/nope/v1") is None


def v2_document():
    return json.loads(openapi_v2.json_document([*BUILT_IN_SERVED, *crd_served(CRD)]))


def test_v2_has_built_in_and_custom_kinds_under_kubernetes_names():
    document = v2_document()

    definitions = document["definitions"]
    pod = definitions["io.k8s.api.core.v1.Pod"]
    assert document["swagger"] == "2.0"
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    assert pod["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    assert definitions["org.kubeflow.v2beta1.MPIJob"]["properties"]["spec"]
    assert {name.removeprefix("#/definitions/") for name in references(document)} <= definitions.keys()
    create = document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"]
    assert [parameter["name"] for parameter in create["parameters"]][:2] == ["body", "dryRun"]


def test_fields_are_described_as_kubernetes_describes_them():
    document = openapi.document([*BUILT_IN_SERVED, *crd_served(CRD)], "apis/kubeflow.org/v2beta1")

    schemas = document["components"]["schemas"]
    job = schemas["org.kubeflow.v2beta1.MPIJob"]["properties"]
    assert job["apiVersion"]["description"].startswith("APIVersion defines the versioned schema")
    assert job["metadata"]["description"].startswith("Standard object's metadata.")
    meta = schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]
    assert meta["creationTimestamp"]["description"].startswith("CreationTimestamp is a timestamp")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True}, {}),
        ({"type": "array", "items": {"type": "string"}, "nullable": True}, {}),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {}}},
            {"x-kubernetes-preserve-unknown-fields": True},
        ),
        (
            {"type": "object", "required": ["a", "b"], "properties": {"a": {"nullable": True}, "b": {}}},
            {"type": "object", "required": ["b"], "properties": {"a": {}, "b": {}}},
        ),
        (
            {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            {"x-kubernetes-int-or-string": True},
        ),
    ],
)
def test_v2_leaves_out_what_kubernetes_leaves_out(schema, expected):
    """``ToStructuralOpenAPIV2`` of k8s.io/apiextensions-apiserver."""
    versions = [{**CRD["spec"]["versions"][0], "schema": {"openAPIV3Schema": {"properties": {"x": schema}}}}]
    rows = crd_served({**CRD, "spec": {**CRD["spec"], "versions": versions}})

    definitions = json.loads(openapi_v2.json_document(rows))["definitions"]
    (found,) = (definitions[name] for name in definitions if name.startswith("org.kubeflow."))
    assert found["properties"]["x"] == expected


def test_v2_names_no_field_of_a_kind_that_takes_any():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {}}}
    versions = [{**CRD["spec"]["versions"][0], "schema": {"openAPIV3Schema": schema}}]
    rows = crd_served({**CRD, "spec": {**CRD["spec"], "versions": versions}})

    definitions = json.loads(openapi_v2.json_document(rows))["definitions"]
    (found,) = (definitions[name] for name in definitions if name.startswith("org.kubeflow."))
    assert found.keys() == {"type", "x-kubernetes-group-version-kind"}


def fields(data):
    """Return numbers and values of a protobuf message of texts, messages and numbers."""
    return [(number, value) for number, _, value in protobuf._fields(data)]


def test_v2_in_protobuf_has_gnostics_messages():
    """``Document``: swagger 1, info 2, paths 8, definitions 9; ``NamedSchema``: name 1, value 2."""
    found = fields(openapi_v2.protobuf_document([*BUILT_IN_SERVED, *crd_served(CRD)]))

    assert found[0] == (1, b"2.0")
    named = [dict(fields(item)) for number, value in found if number == 9 for _, item in fields(value)]
    by_name = {item[1].decode(): fields(item[2]) for item in named}
    assert {"io.k8s.api.core.v1.Pod", "org.kubeflow.v2beta1.MPIJob"} <= by_name.keys()
    pod = by_name["io.k8s.api.core.v1.Pod"]
    assert dict(pod)[4].startswith(b"Pod is a collection of containers")
    assert dict(pod)[22] == b"\x0a\x06object"
    (extension,) = (value for number, value in pod if number == 31)
    name, value = (part for _, part in fields(extension))
    assert name == b"x-kubernetes-group-version-kind"
    assert json.loads(dict(fields(value))[2]) == [{"group": "", "kind": "Pod", "version": "v1"}]
    assert any(number == 8 for number, _ in found)
