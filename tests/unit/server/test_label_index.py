"""The index of labels finds what a look at every object finds, after any writes."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gangline.cluster.server.store.events import Entry
from gangline.cluster.server.store.label_index import KEYS_MAX, LabelIndex

PLACES = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"]))
LABELS = st.none() | st.dictionaries(st.sampled_from(["part", "job"]), st.sampled_from(["1", "2"]))
WRITES = st.lists(st.tuples(PLACES, st.just("gone") | LABELS), max_size=12)


def entry(labels):
    metadata = {} if labels is None else {"labels": labels}
    return Entry(1, msgspec.json.encode({"metadata": metadata}), 0)


def apply(objects, place, labels):
    old = objects.pop(place, None)
    if labels != "gone":
        objects[place] = entry(labels)
    return old, objects.get(place)


@given(WRITES, WRITES)
def test_it_finds_what_a_look_at_every_object_finds(before, after):
    objects, index = {}, LabelIndex()
    for place, labels in before:
        apply(objects, place, labels)
    assert index.begin("part", objects.items())
    for place, labels in after:
        index.change(place, *apply(objects, place, labels))
    for namespace in (None, "a"):
        for value in ("1", "2", "3"):
            expected = [
                objects[place]
                for place in sorted(objects)
                if namespace in (None, place[0])
                and (objects[place].obj["metadata"].get("labels") or {}).get("part") == value
            ]
            assert index.find("part", value, namespace) == expected


def test_it_takes_a_bounded_number_of_labels():
    index = LabelIndex()
    assert all(index.begin(f"key-{number}", []) for number in range(KEYS_MAX))
    assert not index.begin("one-more", [])
    assert index.has("key-0")
    assert not index.has("one-more")
