"""The three patches; expected values from RFC 7386 and from the reference implementation of strategic merge.

The cases in strategic_cases.json were made at random and answered by k8s.io/apimachinery v0.35.
"""

import copy
import json
from pathlib import Path

import pytest

from gangline.api.resources import JOBS, PODS, SERVICES
from gangline.cluster.server.verbs.patch import PatchError, json_patch, merge_patch, strategic_merge

CASES = json.loads((Path(__file__).parent / "strategic_cases.json").read_text())


@pytest.mark.parametrize(
    ("target", "patch", "want"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_gives_what_rfc_7386_lists(target, patch, want):
    assert want == merge_patch(target, patch)


def test_merge_patch_shares_what_it_leaves_alone():
    target = {"spec": {"kept": [1]}, "metadata": {"labels": {"a": "b"}}}

    result = merge_patch(target, {"metadata": {"labels": {"c": "d"}}})

    assert result["spec"] is target["spec"]
    assert target == {"spec": {"kept": [1]}, "metadata": {"labels": {"a": "b"}}}


def test_json_patch_applies_operations_in_order():
    operations = [
        {"op": "test", "path": "/a/0", "value": 1},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "move", "from": "/a/0", "path": "/b~1c"},
        {"op": "copy", "from": "/a", "path": "/d"},
        {"op": "remove", "path": "/d/0"},
        {"op": "replace", "path": "/a/0", "value": None},
    ]

    assert json_patch({"a": [1, 2]}, operations) == {"a": [None, 3], "b/c": 1, "d": [3]}


@pytest.mark.parametrize(
    ("operations", "status"),
    [
        ({}, 400),
        ([1], 400),
        ([{"op": "add", "path": "/a"}], 400),
        ([{"op": "jump", "path": "/a"}], 400),
        ([{"op": "remove"}], 400),
        ([{"op": "remove", "path": "a"}], 400),
        ([{"op": "remove", "path": "/zz"}], 422),
        ([{"op": "remove", "path": "/a/7"}], 422),
        ([{"op": "add", "path": "/a/01", "value": 1}], 422),
        ([{"op": "add", "path": "/x/y", "value": 1}], 422),
        ([{"op": "replace", "path": "/zz", "value": 1}], 422),
        ([{"op": "test", "path": "/a/0", "value": True}], 422),
        ([{"op": "move", "from": "/a", "path": "/a/0"}], 422),
    ],
)
def test_json_patch_that_does_not_fit_is_refused_without_effect(operations, status):
    target = {"a": [1]}
    with pytest.raises(PatchError) as caught:
        json_patch(target, operations)

    assert status == caught.value.status
    assert target == {"a": [1]}


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_strategic_merge_agrees_with_the_reference(case):
    target, patch = copy.deepcopy(case["target"]), copy.deepcopy(case["patch"])

    assert case["want"] == strategic_merge(PODS, target, patch)
    assert (target, patch) == (case["target"], case["patch"])


def test_strategic_merge_knows_the_kinds_inside_kinds():
    job = {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}}}}
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "y"}]}}}}

    containers = strategic_merge(JOBS, job, patch)["spec"]["template"]["spec"]["containers"]

    assert containers == [{"name": "a", "image": "y"}, {"name": "b"}]


def test_strategic_merge_joins_ports_of_services_by_port():
    service = {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81}]}}

    ports = strategic_merge(SERVICES, service, {"spec": {"ports": [{"port": 81, "name": "b"}]}})["spec"][
        "ports"
    ]

    assert ports == [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]


def test_strategic_merge_honours_retain_keys():
    pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {
        "spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}
    }

    assert strategic_merge(PODS, pod, patch)["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


@pytest.mark.parametrize(
    ("patch", "status"),
    [
        ([], 400),
        ({"spec": {"$patch": "explode"}}, 400),
        ({"spec": {"$retainKeys": 1}}, 400),
        ({"spec": {"containers": [{"image": "x"}]}}, 422),
    ],
)
def test_strategic_merge_refuses_malformed_patches(patch, status):
    with pytest.raises(PatchError) as caught:
        strategic_merge(PODS, {"spec": {"containers": []}}, patch)

    assert status == caught.value.status
