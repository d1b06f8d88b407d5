"""Rules of definitions in CEL: what is served of the language, when a rule holds, what is told of the rest.

Expected values follow the specification of CEL and Kubernetes' page on validation rules.
"""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.resources import Resource
from gangline.cluster.server.rules.crd_types import crd_type_errors
from gangline.cluster.server.rules.schema_rules import broken_rules, unserved_rules
from gangline.cluster.server.rules.validation import validate
from gangline.workloads.cel import NotServed, NoValue, compile_rule

SELF = {"a": 1, "text": "gpu-1", "list": ["x", 2], "map": {"k": True}, "one": 1.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("self.a == 1 && self.one == 1", True),
        ("self.map.k == 1", False),
        ("self.a < 2 && self.a <= 1 && 0 < self.a && self.a >= 1", True),
        ("'x' in self.list && !('y' in self.list) && 'k' in self.map", True),
        ("self.text.startsWith('gpu') && self.text.endsWith(\"1\") && self.text.contains('u-')", True),
        ("size(self.list) == 2 && self.list.size() == 2 && size(self.text) == 5", True),
        ("has(self.a) && !has(self.b)", True),
        ("has(self.b) ? self.b : 'none'", "none"),
        ("self.list[0] == 'x' && self.map['k']", True),
        ("self.list == ['x', 2] && -1 < self.a", True),
        ("false || true && false", False),
        ("(true || false) && true ? 1 : 2", 1),
        ("self.missing == 1 || self.a == 1", True),
        ("self.missing == 1 && self.a == 2", False),
        ("null == null", True),
        ("self.text.upperAscii() == 'GPU-1' && self.text.upperAscii().lowerAscii() == self.text", True),
        ("self.text.matches('^gpu-[0-9]+$') && self.text.matches('u.1') && !self.text.matches('^pu')", True),
        ("self.text.matches('^(cpu|gpu)-[^2-9]$') && !self.text.matches('x')", True),
        ("'a\\n'.matches('a$')", False),
        ("cel.bind(x, self.list, x[0] == 'x' && cel.bind(y, x[1], y == 2))", True),
    ],
)
def test_an_expression_has_the_value_that_the_specification_gives(text: str, value: Any) -> None:
    assert compile_rule(text)({"self": SELF}) == value


@pytest.mark.parametrize(
    "text",
    [
        "self.list[-1] == 2",
        "self.text[0] == 'g'",
        "self.list[true] == 2",
        "self.b == 1",
        "has(self.b.c)",
        "self.a < 'x'",
        "self.a",
        "self.list[5] == 1",
        "1 in self.a",
    ],
)
def test_what_is_absent_or_of_another_type_has_no_value(text: str) -> None:
    with pytest.raises(NoValue):
        compile_rule(f"{text} ? 1 : 2")({"self": SELF})


@pytest.mark.parametrize(
    "text",
    (
        "self.a + 1 == 2",
        "self.all(x, x > 0)",
        "self.matches(self.pattern)",
        "self.matches('(a+)+')",
        "self.matches('a{9}')",
        "self.matches('.*.*.*.*.*a')",
        "self.matches('a**')",
        "cel.bind(x, 1)",
        "duration(self.a) == 1",
        "other.a",
        "has(self)",
        "self.__in__",
        "self.a ==",
        "self.a == 1 1",
        "",
        "§",
        "'\\q'",
        "(" * 5000 + "true" + ")" * 5000,
    ),
)
def test_what_is_beyond_the_served_part_is_said(text: str) -> None:
    with pytest.raises(NotServed):
        compile_rule(text)


def schema(rule: dict[str, Any], **of_spec: Any) -> dict[str, Any]:
    spec = {"type": "object", "x-kubernetes-validations": [rule], **of_spec}
    return {"type": "object", "properties": {"spec": spec}}


FIXED = {"rule": "self.a == oldSelf.a", "message": "a is immutable"}


@pytest.mark.parametrize(
    ("old", "broken"),
    [(None, []), ({"spec": {"a": 1}}, []), ({}, []), ({"spec": {"a": 2}}, ["a is immutable"])],
    ids=["new", "the same", "value was not there", "changed"],
)
def test_a_rule_about_the_state_before_holds_for_updates(old: Any, broken: list[str]) -> None:
    found = broken_rules({"spec": {"a": 1}}, old, schema(FIXED))

    assert [error.message for error in found] == broken
    assert {error.path for error in found} <= {"spec"}


def test_a_rule_holds_for_new_objects_and_for_what_changes() -> None:
    small = schema({"rule": "self.a <= 1"})

    (error,) = broken_rules({"spec": {"a": 2}}, None, small)

    assert (error.path, error.message) == ("spec", "failed rule: self.a <= 1")
    assert broken_rules({"spec": {"a": 2}}, {"spec": {"a": 2}}, small) == []
    assert len(broken_rules({"spec": {"a": 3}}, {"spec": {"a": 2}}, small)) == 1


def test_an_expression_without_a_value_breaks_its_rule() -> None:
    (error,) = broken_rules({"spec": {}}, None, schema({"rule": "self.a <= 1", "fieldPath": ".a"}))

    assert (error.path, error.message) == ("spec.a", "failed rule: self.a <= 1: no such key: a")


@pytest.mark.parametrize(
    ("part", "old", "new", "is_same"),
    [
        ({"type": "array", "x-kubernetes-list-type": "set"}, ["a", "b"], ["b", "a"], True),
        (
            {"type": "array", "x-kubernetes-list-type": "map"},
            [{"k": 1}, {"k": 2}],
            [{"k": 2}, {"k": 1}],
            True,
        ),
        ({"type": "array", "x-kubernetes-list-type": "set"}, ["a", "b"], ["b", "c"], False),
        ({"type": "array"}, ["a", "b"], ["b", "a"], False),
        (
            {"type": "string", "format": "date-time"},
            "2026-05-01T12:00:00Z",
            "2026-05-01T14:00:00+02:00",
            True,
        ),
        ({"type": "string"}, "2026-05-01T12:00:00Z", "2026-05-01T14:00:00+02:00", False),
    ],
)
def test_sets_maps_and_times_are_compared_by_what_they_mean(
    part: Any, old: Any, new: Any, is_same: bool
) -> None:
    fixed = schema({"rule": "self == oldSelf"}, properties={"a": part})

    assert bool(broken_rules({"spec": {"a": new}}, {"spec": {"a": old}}, fixed)) != is_same


def test_the_field_of_a_rule_of_the_whole_object_is_named_as_any_other() -> None:
    whole = {"type": "object", "x-kubernetes-validations": [{"rule": "has(self.a)", "fieldPath": ".a"}]}

    assert [error.path for error in broken_rules({}, None, whole)] == ["a"]


@pytest.mark.parametrize("rules", ["self", 3, ["self"], [{}], [{"rule": 3}], {"rule": "self"}])
def test_rules_that_are_none_are_errors_of_the_definition(rules: Any) -> None:
    inner = {"type": "object", "x-kubernetes-validations": rules}
    version = {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": inner}}}}

    (error,) = crd_type_errors({"spec": {"versions": [version]}})

    assert "x-kubernetes-validations" in error.path


def test_rules_are_found_at_every_depth() -> None:
    rule = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}
    parts = {
        "list": {"type": "array", "items": rule},
        "map": {"type": "object", "additionalProperties": rule},
    }
    whole = {"type": "object", "properties": parts}

    found = broken_rules({"list": [1, 0], "map": {"x": -1}}, None, whole)

    assert [error.path for error in found] == ["list[1]", "map.x"]


def test_the_creator_of_a_definition_is_told_what_is_not_evaluated() -> None:
    rule = {"rule": "self.items.all(x,\n  x > 0)"}
    version = {"schema": {"openAPIV3Schema": schema(rule)}}

    told = unserved_rules({"spec": {"versions": [version, version]}})

    assert told == [
        "spec: the rule `self.items.all(x, x > 0)` is not evaluated here: "
        "`all()` is beyond the served part of CEL"
    ]
    assert unserved_rules({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema(FIXED)}}]}}) == []


def test_match_conditions_of_webhooks_are_cel():
    kind = Resource(
        "admissionregistration.k8s.io", "v1", "x", "ValidatingWebhookConfiguration", namespaced=False
    )
    texts = [
        "object.metadata.name != 'skip-me'",
        "... [] bad expression",
        "request.userInfo.groups.all(g, g != 'a')",
    ]
    obj = {
        "metadata": {"name": "hooks"},
        "webhooks": [{"name": "a.b.c", "matchConditions": [{"name": t[:3], "expression": t} for t in texts]}],
    }

    (error,) = validate(kind, obj, None)

    assert error.path == "webhooks[0].matchConditions[1].expression"
    assert "compilation failed" in error.message


def test_addresses_are_names_in_their_one_form():
    kind = Resource("networking.k8s.io", "v1", "ipaddresses", "IPAddress", namespaced=False)

    for name, is_right in (
        ("fe80::42:1dff:fe84:f9e2", True),
        ("10.96.0.1", True),
        ("fe80::0:1", False),
        ("a", False),
    ):
        assert (validate(kind, {"metadata": {"name": name}}, None) == []) is is_right
