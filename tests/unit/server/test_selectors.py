"""Label and field selectors; expected values from the API reference and from requests that kubectl sends."""

import pytest

from gangline.api.resources import EVENTS, JOBS, MPIJOBS, NODES, PODS
from gangline.cluster.server.wire.selectors import (
    label_selector_from_object,
    parse_field_selector,
    parse_label_selector,
)


@pytest.mark.parametrize(
    ("text", "labels", "want"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (x,y),!z,k!=v", {"a": "y"}, True),
        ("a in (x, y)", {}, False),
        ("a notin (x,y)", {}, True),
        ("a notin (x,y)", {"a": "x"}, False),
        ("a", {"a": ""}, True),
        ("a=", {"a": ""}, True),
        ("!a", {"a": "1"}, False),
        ("n>3", {"n": "4"}, True),
        ("n<3", {"n": "x"}, False),
        ("example.com/a.b-c_d=v", {"example.com/a.b-c_d": "v"}, True),
        ("a=b, c = d", {"a": "b", "c": "d"}, True),
    ],
)
def test_label_selector_matches(text, labels, want):
    assert want is parse_label_selector(text).matches(labels)


@pytest.mark.parametrize(
    "text",
    ["a=b,", ",", "a in", "a in x", "a in (x", "=b", "a=b c", "a=!", "-a=b", "a/b/c=d", "a=b;c", "n>x"],
)
def test_label_selector_refuses_nonsense(text):
    with pytest.raises(ValueError):
        parse_label_selector(text)


def test_label_selector_of_a_spec():
    selector = label_selector_from_object(
        {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}
    )

    assert selector.matches({"a": "b"})
    assert not selector.matches({"a": "b", "c": ""})
    with pytest.raises(ValueError, match="Near"):
        label_selector_from_object({"matchExpressions": [{"key": "c", "operator": "Near"}]})


@pytest.mark.parametrize(
    ("resource", "text", "obj", "want"),
    [
        (PODS, "metadata.name=x,metadata.name=x", {"metadata": {"name": "x"}}, True),
        (PODS, "spec.nodeName=n,status.phase!=Failed", {"spec": {"nodeName": "n"}}, True),
        (PODS, "status.phase!=Failed", {"status": {"phase": "Failed"}}, False),
        (PODS, "spec.hostNetwork=false", {"spec": {}}, True),
        (PODS, "spec.nodeName=", {"spec": {}}, True),
        (NODES, "spec.unschedulable=true", {"spec": {"unschedulable": True}}, True),
        (EVENTS, "source=kubelet", {"source": {"component": "kubelet"}}, True),
        (EVENTS, "source=op", {"reportingComponent": "op"}, True),
        (EVENTS, "involvedObject.namespace=", {"involvedObject": {"kind": "Node"}}, True),
        (JOBS, "status.successful=0", {"status": {}}, True),
        (PODS, r"metadata.name=a\,b\=c\\", {"metadata": {"name": "a,b=c\\"}}, True),
    ],
)
def test_field_selector_matches(resource, text, obj, want):
    assert want is parse_field_selector(text, resource).matches(obj)


def test_field_selector_names_what_is_not_offered():
    with pytest.raises(ValueError, match=r"field label not supported: spec\.foo"):
        parse_field_selector("spec.foo=1", PODS)
    with pytest.raises(ValueError, match="can't understand"):
        parse_field_selector("spec.nodeName", PODS)
    assert parse_field_selector("spec.x=1", MPIJOBS, selectable=["spec.x"]).matches({"spec": {"x": 1}})


def test_field_selector_tells_the_name_that_it_demands():
    selector = parse_field_selector("metadata.name=x,status.phase!=Failed", PODS)

    assert (selector.exact("metadata.name"), selector.exact("status.phase")) == ("x", None)
