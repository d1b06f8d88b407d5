"""Structural schemas of custom kinds: pruning, defaults, validation."""

import pytest

from gangline.cluster.server.rules import schema

SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["n"],
            "properties": {
                "n": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 10, "default": 1},
                "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
                "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                "when": {"type": "string", "format": "date-time"},
                "port": {"x-kubernetes-int-or-string": True},
                "maybe": {"type": "string", "nullable": True},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "map": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {"x": {"type": "integer", "default": 7}},
                    },
                },
                "list": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                },
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {}},
                "one": {"oneOf": [{"type": "string"}, {"type": "string", "minLength": 3}]},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def make(**spec):
    return {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x"}, "spec": spec}


def test_unknown_fields_go_and_are_named():
    obj = make(n=1, nn=2, map={"a": {"x": 1, "y": 2}}, list=[{"k": "a", "z": 1}], free={"any": 1}) | {
        "extra": 1
    }

    result, dropped = schema.prune(obj, SCHEMA)

    assert dropped == ["spec.nn", "spec.map.a.y", "spec.list[0].z", "extra"]
    assert result == make(n=1, map={"a": {"x": 1}}, list=[{"k": "a"}], free={"any": 1})


def test_embedded_resources_keep_their_type_and_the_fields_of_metadata():
    obj = make(n=1, template={"apiVersion": "v1", "kind": "Pod", "metadata": {"a": 1}, "spec": {}})

    kept, dropped = schema.prune(obj, SCHEMA)
    assert dropped == ["spec.template.metadata.a", "spec.template.spec"]
    assert kept["spec"]["template"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {}}


def test_without_a_schema_everything_stays():
    assert schema.prune(make(a=1), None) == (make(a=1), [])
    assert schema.defaults(make(a=1), None) == make(a=1)
    assert schema.validate(make(a=1), None) == []


def test_defaults_fill_what_is_absent_or_null():
    obj = make(n=None, map={"a": {}}, maybe=None)

    result = schema.defaults(obj, SCHEMA)

    assert result == make(n=1, mode="A", map={"a": {"x": 7}}, maybe=None)
    assert obj == make(n=None, map={"a": {}}, maybe=None)
    assert schema.defaults(result, SCHEMA) is result


def test_defaults_make_no_parents():
    assert schema.defaults({"kind": "K"}, SCHEMA) == {"kind": "K"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"n": 3, "mode": "B", "name": "abc", "port": "http", "list": [{"k": "a"}, {"k": "b"}]}, []),
        ({}, [("Required", "spec.n")]),
        ({"n": "3"}, [("TypeInvalid", "spec.n")]),
        ({"n": True}, [("TypeInvalid", "spec.n")]),
        ({"n": 1.5}, [("TypeInvalid", "spec.n")]),
        ({"n": None}, [("TypeInvalid", "spec.n")]),
        ({"n": 11}, [("Invalid", "spec.n")]),
        ({"n": -1}, [("Invalid", "spec.n")]),
        ({"n": 1, "mode": "C"}, [("NotSupported", "spec.mode")]),
        ({"n": 1, "name": "a"}, [("Invalid", "spec.name")]),
        ({"n": 1, "name": "ABCDE"}, [("Invalid", "spec.name"), ("Invalid", "spec.name")]),
        ({"n": 1, "when": "soon"}, [("Invalid", "spec.when")]),
        ({"n": 1, "port": 1.5}, [("TypeInvalid", "spec.port")]),
        ({"n": 1, "maybe": None}, []),
        ({"n": 1, "map": {"a": {"x": "y"}}}, [("TypeInvalid", "spec.map.a.x")]),
        ({"n": 1, "list": [{"k": "a"}, {"k": "a"}]}, [("Duplicate", "spec.list[1]")]),
        ({"n": 1, "list": [{}, {"k": "a"}, {"k": "b"}, {"k": "c"}]}, [("Invalid", "spec.list")]),
        ({"n": 1, "set": ["a", "b", "a"]}, [("Duplicate", "spec.set[2]")]),
        ({"n": 1, "one": "abcd"}, [("Invalid", "spec.one")]),
        ({"n": 1, "one": "ab"}, []),
    ],
)
def test_schema_rule(spec, want):
    assert want == [(error.reason, error.path) for error in schema.validate(make(**spec), SCHEMA)]


@pytest.mark.parametrize(
    ("bounds", "held", "broken"),
    [
        ({"minimum": 1}, [1, 1.5, 2], [0.999, 0, -1]),
        ({"minimum": 1, "exclusiveMinimum": False}, [1], [0]),
        ({"minimum": 1, "exclusiveMinimum": True}, [1.001, 2], [1, 0]),
        ({"maximum": 8}, [8, 7], [8.001, 9]),
        ({"maximum": 8, "exclusiveMaximum": True}, [7.999, 0], [8, 9]),
        ({"minimum": 0, "maximum": 1, "exclusiveMinimum": True, "exclusiveMaximum": True}, [0.5], [0, 1]),
        ({"exclusiveMinimum": True}, [-1, 0], []),  # says nothing without the bound itself
    ],
)
def test_a_bound_may_be_exclusive(bounds, held, broken):
    """In OpenAPI v3.0, as Kubernetes has it, the two are booleans beside ``minimum`` and ``maximum``."""
    number = {"type": "object", "properties": {"n": {"type": "number"} | bounds}}

    for value in held:
        assert schema.validate({"n": value}, number) == [], value
    for value in broken:
        assert [error.path for error in schema.validate({"n": value}, number)] == ["n"], value


def test_missing_part_of_the_top_level_is_required():
    assert [error.path for error in schema.validate({"kind": "K"}, SCHEMA)] == ["spec"]


def test_a_null_that_a_field_may_not_have_and_no_default_replaces_goes():
    # As structural schemas do: PruneNonNullableNullsWithoutDefaults of apiextensions.
    roles = {"type": "object", "additionalProperties": {"type": "object"}}
    fields = {"n": {"type": "integer"}, "maybe": {"type": "string", "nullable": True}, "roles": roles}
    given = {"n": None, "maybe": None, "roles": {"a": None, "b": {}}, "other": None}

    assert schema.defaults(given, {"type": "object", "properties": fields}) == {
        "maybe": None,
        "roles": {"b": {}},
        "other": None,
    }
