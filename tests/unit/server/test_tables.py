"""Tables of all kinds but pods, and of custom kinds with printer columns."""

from datetime import UTC, datetime

import pytest

from gangline.api import resources as r
from gangline.cluster.server.resources import BUILT_IN_SERVED
from gangline.cluster.server.tables.tables import to_table

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
META = {"name": "x", "creationTimestamp": "2026-01-02T11:59:00Z"}
CONDITIONS = {"conditions": [{"type": "Complete", "status": "True"}]}


def cells(resource, obj, **more):
    return to_table(resource, [{"metadata": META, **obj}], now=NOW, **more)["rows"][0]["cells"]


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        ({"completions": 2}, {}, ["Running", "0/2", ""]),
        (
            {"completions": 1},
            {"succeeded": 1, "startTime": "2026-01-02T11:00:00Z", "completionTime": "2026-01-02T11:01:30Z"}
            | CONDITIONS,
            ["Complete", "1/1", "90s"],
        ),
        ({"parallelism": 3}, {"startTime": "2026-01-02T11:59:00Z"}, ["Running", "0/1 of 3", "60s"]),
        ({}, {"conditions": [{"type": "Suspended", "status": "True"}]}, ["Suspended", "0/1", ""]),
        ({}, {"conditions": [{"type": "FailureTarget", "status": "True"}]}, ["FailureTarget", "0/1", ""]),
    ],
)
def test_job_shows_status_completions_and_duration(spec, status, want):
    assert want == cells(r.JOBS, {"spec": spec, "status": status})[1:4]


def test_job_wide_columns():
    template = {"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}}
    spec = {"template": template, "selector": {"matchLabels": {"k": "v"}}}

    assert cells(r.JOBS, {"spec": spec})[5:] == ["a,b", "i,j", "k=v"]


@pytest.mark.parametrize(
    ("resource", "obj", "want"),
    [
        (r.CONFIG_MAPS, {"data": {"a": ""}, "binaryData": {"b": ""}}, ["x", 2, "60s"]),
        (r.SECRETS, {"type": "Opaque", "data": {"a": ""}}, ["x", "Opaque", 1, "60s"]),
        (r.NAMESPACES, {"status": {"phase": "Active"}}, ["x", "Active", "60s"]),
        (r.LEASES, {"spec": {"holderIdentity": "me"}}, ["x", "me", "60s"]),
        (r.SERVICE_ACCOUNTS, {}, ["x", "60s"]),
        (r.PRIORITY_CLASSES, {"value": 5}, ["x", 5, False, "60s", "PreemptLowerPriority"]),
        (r.CRDS, {}, ["x", META["creationTimestamp"]]),
        (
            r.ENDPOINTS,
            {"subsets": [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(5)], "ports": [{"port": 1}]}]},
            ["x", "10.0.0.0:1,10.0.0.1:1,10.0.0.2:1 + 2 more...", "60s"],
        ),
        (
            r.NODES,
            {
                "metadata": META | {"labels": {"node-role.kubernetes.io/control-plane": ""}},
                "spec": {"unschedulable": True},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"kubeletVersion": "v1"},
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                },
            },
            [
                "x",
                "Ready,SchedulingDisabled",
                "control-plane",
                "60s",
                "v1",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>",
            ],
        ),
        (
            r.SERVICES,
            {"spec": {"clusterIP": "None", "selector": {"a": "b"}}},
            ["x", "ClusterIP", "None", "<none>", "<none>", "60s", "a=b"],
        ),
        (
            r.SERVICES,
            {
                "spec": {
                    "type": "NodePort",
                    "clusterIP": "1.2.3.4",
                    "ports": [{"port": 80, "nodePort": 30000}],
                }
            },
            ["x", "NodePort", "1.2.3.4", "<none>", "80:30000/TCP", "60s", "<none>"],
        ),
    ],
    ids=lambda value: value.kind if hasattr(value, "kind") else "",
)
def test_kind_shows_its_columns(resource, obj, want):
    assert want == cells(resource, obj)


def test_event_shows_when_it_was_last_seen():
    event = {
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
        "reason": "Started",
        "type": "Normal",
        "message": "m\n",
        "source": {"component": "agent", "host": "n"},
        "firstTimestamp": "2026-01-02T11:00:00Z",
        "lastTimestamp": "2026-01-02T11:59:30Z",
        "count": 4,
    }

    assert cells(r.EVENTS, event) == [
        "30s", "Normal", "Started", "pod/p", "spec", "agent, n", "m", "60m", 4, "x"
    ]  # fmt: skip
    assert cells(r.EVENTS, {"eventTime": "2026-01-02T11:59:00.000000Z"})[0] == "60s"


def test_custom_kind_shows_its_printer_columns():
    columns = [
        {"name": "State", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Started", "type": "date", "jsonPath": ".status.start"},
        {"name": "N", "type": "integer", "jsonPath": ".spec.replicas[0]"},
        {"name": "Label", "type": "string", "jsonPath": r".metadata.labels.example\.com/a"},
        {"name": "Missing", "type": "string", "jsonPath": ".spec.none"},
        {"name": "Wrong", "type": "integer", "jsonPath": ".status.start"},
        {"name": "Wide", "type": "string", "jsonPath": ".spec['names'][*]", "priority": 1},
    ]
    obj = {
        "metadata": META | {"labels": {"example.com/a": "v"}},
        "spec": {"replicas": [4], "names": ["a", "b"]},
        "status": {"start": "2026-01-02T11:59:00Z", "conditions": [{"type": "Ready", "status": "True"}]},
    }

    table = to_table(r.MPIJOBS, [obj], columns=columns, now=NOW)

    assert table["rows"][0]["cells"] == ["x", "True", "60s", 4, "v", None, None, "a b"]
    assert [column["priority"] for column in table["columnDefinitions"]][-1] == 1


def test_custom_kind_without_columns_shows_name_and_age():
    assert cells(r.MPIJOBS, {}, columns=()) == ["x", "60s"]


@pytest.mark.parametrize(
    ("include", "want"),
    [
        ("None", None),
        ("Metadata", {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": META}),
        ("Object", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": META, "data": {}}),
    ],
)
def test_rows_carry_as_much_of_the_object_as_asked_for(include, want):
    obj = {"metadata": META, "data": {}}

    assert want == to_table(r.CONFIG_MAPS, [obj], include_object=include, now=NOW)["rows"][0].get("object")


def test_later_events_of_a_watch_repeat_no_columns():
    table = to_table(r.PODS, [], now=NOW, with_columns=False, metadata={"resourceVersion": "7"})

    assert (table["columnDefinitions"], table["metadata"]) == (None, {"resourceVersion": "7"})


@pytest.mark.parametrize("row", BUILT_IN_SERVED, ids=lambda row: row.resource.kind)
def test_every_kind_has_as_many_cells_as_columns_even_when_empty(row):
    table = to_table(row.resource, [{"metadata": {"name": "x"}}], now=NOW)

    assert len(table["columnDefinitions"]) == len(table["rows"][0]["cells"])
