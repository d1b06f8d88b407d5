"""The three-way merge of client-side apply."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.kube.apply import LAST_APPLIED, three_way_patch, with_last_applied


@pytest.mark.parametrize(
    ("last", "desired", "live", "want_patch"),
    [
        pytest.param({}, {"a": 1}, {"a": 1}, {}, id="nothing to do"),
        pytest.param({}, {"a": 1}, {"a": 2}, {"a": 1}, id="a value differs"),
        pytest.param({"a": 1}, {}, {"a": 1}, {"a": None}, id="a key was dropped from the manifest"),
        pytest.param({}, {}, {"a": 1}, {}, id="a key of somebody else stays"),
        pytest.param({"a": 1}, {}, {}, {}, id="a dropped key is gone already"),
        pytest.param(
            {"m": {"x": 1, "y": 1}},
            {"m": {"x": 2}},
            {"m": {"x": 1, "y": 1, "z": 1}},
            {"m": {"x": 2, "y": None}},
            id="inside",
        ),
        pytest.param(
            {"l": [{"n": "a"}]},
            {"l": [{"n": "a"}]},
            {"l": [{"n": "a", "default": 1}]},
            {},
            id="defaults in a list",
        ),
        pytest.param({"l": [1]}, {"l": [1, 2]}, {"l": [1]}, {"l": [1, 2]}, id="a changed list"),
        pytest.param({"l": [1]}, {"l": [1]}, {"l": [1, 2]}, {"l": [1]}, id="a list that others changed"),
        pytest.param({}, {"a": None}, {"a": 1}, {"a": None}, id="null removes"),
        pytest.param({}, {"a": None}, {}, {}, id="null of nothing"),
        pytest.param({}, {"a": {"b": 1}}, {"a": 5}, {"a": {"b": 1}}, id="another shape"),
    ],
)
def test_patch_says_only_what_is_to_change(last: Any, desired: Any, live: Any, want_patch: Any) -> None:
    assert three_way_patch(last, desired, live) == want_patch


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386, the server's part."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge(target.get(key), value)
    return target


leaves = st.one_of(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=2))
trees = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_size=3,
)


@given(last=trees, desired=trees, live=trees)
def test_applying_twice_is_applying_once(last: Any, desired: Any, live: Any) -> None:
    merged = merge(live, three_way_patch(last, desired, live))

    assert three_way_patch(desired, desired, merged) == {}


def test_the_manifest_is_kept_in_the_annotation() -> None:
    manifest = {"kind": "Pod", "metadata": {"name": "a", "annotations": {"k": "v", LAST_APPLIED: "old"}}}
    annotated = with_last_applied(manifest, "default")
    text = annotated["metadata"]["annotations"][LAST_APPLIED]

    assert json.loads(text) == {
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default", "annotations": {"k": "v"}},
    }
    assert annotated["metadata"]["annotations"]["k"] == "v"
    assert manifest["metadata"]["annotations"][LAST_APPLIED] == "old"
