"""Nothing that a client may send makes the rules of objects raise; defaults and pruning settle."""

import copy
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api import resources as r
from gangline.api.wire_types import message, message_of_kind
from gangline.cluster.server.rules import schema
from gangline.cluster.server.rules.defaults import apply_defaults
from gangline.cluster.server.rules.validation import validate
from gangline.cluster.server.tables.tables import to_table
from gangline.cluster.server.wire.field_types import known_fields
from gangline.cluster.server.wire.protobuf import MAGIC, decode
from gangline.cluster.server.wire.selectors import parse_field_selector, parse_label_selector

KINDS = st.sampled_from([resource for resource in r.BUILT_IN if resource != r.CRDS])
SCALARS = {
    "s": st.sampled_from(["", "a", "A b", "Always", "x/y"]),
    "i": st.sampled_from([-1, 0, 1, 80, 1 << 40]),
    "b": st.booleans(),
    "y": st.sampled_from(["", "YQ=="]),
    "T": st.just("2026-01-01T00:00:00Z"),
    "M": st.just("2026-01-01T00:00:00.000001Z"),
    "Q": st.sampled_from(["1", "500m", "0", 3]),
    "I": st.sampled_from([0, 80, "http"]),
    "L": st.just(["a"]),
    "F": st.just({}),
    "R": st.just({}),
}


@st.composite
def objects(draw, schema_name, depth=0):
    """Draw an object with a few fields of a message, each of its right type, some of them null."""
    fields = list(message(schema_name).by_name.values())
    result = {}
    for field in (
        draw(st.lists(st.sampled_from(fields), max_size=5, unique_by=lambda f: f.name)) if fields else ()
    ):
        if field.is_message:
            if depth > 5:
                continue
            value = objects(field.type, depth + 1)
        else:
            value = SCALARS[field.type]
        if field.shape == "*":
            value = st.lists(value, max_size=2)
        elif field.shape == "%":
            value = st.dictionaries(st.sampled_from(["a", "cpu", "nvidia.com/gpu"]), value, max_size=2)
        result[field.name] = draw(st.none() | value) if draw(st.integers(0, 9)) == 0 else draw(value)
    return result


@st.composite
def typed(draw):
    resource = draw(KINDS)
    found = message_of_kind(resource.group, resource.version, resource.kind)
    return resource, draw(objects(found.name))


@settings(max_examples=300, deadline=None)
@given(typed())
def test_well_typed_object_passes_every_rule_without_an_exception(drawn):
    resource, obj = drawn
    before = copy.deepcopy(obj)

    known, found = known_fields(resource, obj)
    assert (found.unknown, found.errors) == ([], [])
    complete = apply_defaults(resource, known)
    validate(resource, complete)
    validate(resource, complete, known)
    to_table(resource, [known, complete], now=datetime(2026, 1, 1, tzinfo=UTC))
    assert complete == apply_defaults(resource, complete, old=complete)
    assert before == obj


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["metadata", "spec", "containers", "name", "labels", "data"]), inner, max_size=3
    ),
    max_leaves=10,
)


@settings(deadline=None)
@given(KINDS, st.dictionaries(st.sampled_from(["metadata", "spec", "status", "data", "x"]), JSON, max_size=4))
def test_any_json_object_is_judged_and_not_a_crash(resource, obj):
    known, _ = known_fields(resource, obj)
    validate(resource, known)


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "integer", "default": 1},
            {"type": "boolean"},
            {"type": "string", "default": "d"},
        ]
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3)}
    )
    | st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner})
    | st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
    max_leaves=8,
)
VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["", "s"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=3), SCHEMAS)
def test_pruning_and_defaults_settle(obj, drawn):
    before = copy.deepcopy(obj)

    pruned, _ = schema.prune(obj, drawn)
    assert schema.prune(pruned, drawn) == (pruned, [])
    complete = schema.defaults(pruned, drawn)
    assert schema.defaults(complete, drawn) == complete
    schema.validate(complete, drawn)
    assert before == obj


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(raw):
    for body in (raw, MAGIC + raw, MAGIC + b"\n\x09\n\x02v1\x12\x03Pod\x12" + bytes([len(raw) & 0x7F]) + raw):
        try:
            decode(body)
        except ValueError:
            continue


@given(st.text(alphabet="ab=!,() in<>1/.\\", max_size=20))
def test_any_text_is_a_selector_or_refused(text):
    try:
        parse_label_selector(text).matches({"a": "b"})
    except ValueError:
        pass
    try:
        parse_field_selector(text, r.PODS).matches({})
    except ValueError:
        pass
