"""Laws of the patches; the oracle of JSON patch is the jsonpatch package."""

import copy
import json

import jsonpatch
import jsonpointer
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api.resources import PODS
from gangline.cluster.server.verbs.patch import PatchError, json_patch, merge_patch, strategic_merge

KEYS = st.sampled_from(["a", "b", "c", "x/y", "t~", ""])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


@given(OBJECTS, OBJECTS)
def test_merge_patch_changes_no_input_and_settles(target, patch):
    before = copy.deepcopy((target, patch))

    once = merge_patch(target, patch)

    assert once == merge_patch(once, patch)
    assert before == (target, patch)


@given(OBJECTS, OBJECTS)
def test_merge_patch_between_two_objects_leads_from_one_to_the_other(source, goal):
    source, goal = without_nulls(source), without_nulls(goal)

    def difference(old, new):
        patch = {key: None for key in old if key not in new}
        for key, value in new.items():
            if isinstance(value, dict) and isinstance(old.get(key), dict):
                patch[key] = difference(old[key], value)
            elif key not in old or old[key] != value:
                patch[key] = value
        return patch

    assert (
        json.dumps(goal, sort_keys=True)
        == json.dumps(merge_patch(source, difference(source, goal)), sort_keys=True)
        or merge_patch(source, difference(source, goal)) == goal
    )


@given(OBJECTS, OBJECTS)
def test_json_patch_made_by_the_oracle_leads_from_one_to_the_other(source, goal):
    operations = jsonpatch.make_patch(source, goal).patch
    before = copy.deepcopy(source)

    assert goal == json_patch(source, operations)
    assert before == source


PATHS = st.lists(KEYS | st.sampled_from(["0", "1", "2", "-"]), max_size=3).map(
    lambda parts: "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
)
OPERATIONS = st.one_of(
    st.fixed_dictionaries({"op": st.just("add"), "path": PATHS, "value": VALUES}),
    st.fixed_dictionaries({"op": st.just("replace"), "path": PATHS, "value": VALUES}),
    st.fixed_dictionaries({"op": st.just("remove"), "path": PATHS.filter(bool)}),
    st.fixed_dictionaries({"op": st.just("copy"), "from": PATHS, "path": PATHS}),
)


@settings(max_examples=300)
@given(OBJECTS, st.lists(OPERATIONS, max_size=4))
def test_json_patch_agrees_with_the_oracle(target, operations):
    try:
        want = jsonpatch.apply_patch(copy.deepcopy(target), operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError, IndexError):
        want = PatchError
    try:
        got = json_patch(target, operations)
    except PatchError:
        got = PatchError

    # The oracle lets a path run through texts and past the end of lists; only agreeing successes are
    # compared.
    if want is not PatchError and got is not PatchError:
        assert want == got


NAMES = st.sampled_from("abcd")
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"image": NAMES, "args": st.lists(NAMES, max_size=2)}),
    max_size=4,
    unique_by=lambda container: container["name"],
)
PODS_SEEN = st.fixed_dictionaries({"spec": st.fixed_dictionaries({"containers": CONTAINERS})})


@given(PODS_SEEN, PODS_SEEN)
def test_strategic_merge_settles_and_keeps_unnamed_containers(target, patch):
    before = copy.deepcopy((target, patch))

    once = strategic_merge(PODS, target, patch)

    assert once == strategic_merge(PODS, once, patch)
    assert before == (target, patch)
    names = [container["name"] for container in once["spec"]["containers"]]
    both = [*target["spec"]["containers"], *patch["spec"]["containers"]]
    assert sorted(names) == sorted({container["name"] for container in both})


@given(PODS_SEEN, st.permutations("abcd"))
def test_demanded_order_is_given_to_all_named_items(target, order):
    patch = {"spec": {"$setElementOrder/containers": [{"name": name} for name in order]}}

    names = [c["name"] for c in strategic_merge(PODS, target, patch)["spec"]["containers"]]

    assert names == [name for name in order if name in names]


@given(PODS_SEEN, NAMES)
def test_deleted_item_is_gone_and_no_directive_is_stored(target, name):
    result = strategic_merge(PODS, target, {"spec": {"containers": [{"name": name, "$patch": "delete"}]}})

    assert "$" not in json.dumps(result)
    assert name not in [container["name"] for container in result["spec"]["containers"]]
