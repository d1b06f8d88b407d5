"""Kinds that are stored once and served under two names."""

import pytest

from gangline.api import resources as r
from gangline.cluster.server.wire.conversion import convert, selected_field
from gangline.cluster.server.wire.selectors import parse_field_selector, selector_text

CORE = {
    "apiVersion": "v1",
    "kind": "Event",
    "message": "started",
    "involvedObject": {"kind": "Pod"},
    "reportingComponent": "agent",
    "source": {"component": "agent"},
    "firstTimestamp": "2026-01-31T12:00:00Z",
    "lastTimestamp": "2026-01-31T12:00:01Z",
    "count": 2,
    "type": "Normal",
}


def test_events_of_both_groups_hold_the_same():
    named = convert(CORE, "events.k8s.io/v1")

    assert named["note"] == "started"
    assert named["regarding"] == {"kind": "Pod"}
    assert (named["reportingController"], named["deprecatedCount"]) == ("agent", 2)
    assert not named.keys() & {"message", "involvedObject", "reportingComponent", "source", "count"}
    assert convert({**named, "apiVersion": "events.k8s.io/v1"}, "v1") == {
        **CORE,
        "apiVersion": "events.k8s.io/v1",
    }


def test_field_of_an_event_is_selected_by_the_name_of_either_group():
    events = r.Resource("events.k8s.io", "v1", "events", "Event")

    assert selected_field("events.k8s.io/v1", "regarding.name") == "involvedObject.name"
    assert parse_field_selector("regarding.kind=Pod", events).matches(CORE)
    assert not parse_field_selector("regarding.kind=Node", events).matches(CORE)


CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}


@pytest.mark.parametrize("metrics", [[CPU], [PODS], [CPU, PODS]])
def test_scaler_written_as_version_1_keeps_what_only_version_2_has(metrics):
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
        "spec": {"maxReplicas": 3, "metrics": metrics, "behavior": {"scaleUp": {"selectPolicy": "Max"}}},
    }

    old = convert(scaler, "autoscaling/v1")

    assert old["spec"].get("targetCPUUtilizationPercentage") == (80 if CPU in metrics else None)
    assert not old["spec"].keys() & {"metrics", "behavior"}
    again = convert({**old, "apiVersion": "autoscaling/v1"}, "autoscaling/v2")
    assert {**again, "apiVersion": "autoscaling/v2"} == scaler


def test_other_kinds_are_left_alone():
    pod = {"apiVersion": "v1", "kind": "Pod"}

    assert convert(pod, "v2") is pod


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"app": "a", "aa": "b"}, "aa=b,app=a"),
        ({"matchLabels": {"app": "a"}}, "app=a"),
        ({"matchExpressions": [{"key": "k", "operator": "In", "values": ["b", "a"]}]}, "k in (a,b)"),
        ({"matchExpressions": [{"key": "k", "operator": "DoesNotExist"}]}, "!k"),
        ({}, ""),
    ],
)
def test_selector_of_either_form_is_shown_as_text(selector, text):
    assert selector_text(selector) == text
