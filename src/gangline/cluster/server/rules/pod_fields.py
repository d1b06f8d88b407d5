"""What is made of every field of a pod: honoured, refused, or taken with a warning.

The answers stand in ``pod_fields.toml``, one for each field of the published schema that a pod's spec
reaches; a test walks the schema and finds none missing.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gangline.api.resources import MPIJOBS, Resource
from gangline.api.training.kinds import TRAINING_KINDS
from gangline.api.wire_types import Message, message, message_of_kind
from gangline.cluster.server.rules.field_rules import forbidden
from gangline.errors import FieldError

POD_SPEC = "core/v1.PodSpec"
CONTAINER = "core/v1.Container"
EACH = "*"
"""Stands in a path for every value of a map."""

_TABLE = Path(__file__).with_suffix(".toml")
_DEPTH_MAX = 6
"""Fields from an object to the pod spec in it; a CronJob's is the deepest with five."""
_TEMPLATES: dict[Resource, tuple[str, ...]] = {
    resource: ("spec", field, EACH, "template", "spec")
    for resource, field in (
        (MPIJOBS, "mpiReplicaSpecs"),
        *((kind.resource, kind.specs_field) for kind in TRAINING_KINDS),
    )
}

Verdict = Literal["honoured", "refused", "warned"]


@dataclass(frozen=True, slots=True)
class FieldAnswer:
    """What is made of one field; the notation of the table is explained at its top.

    Attributes:
        verdict: honoured, refused or warned.
        says: the words, empty for a field that is honoured.
        isolations: modes in which it holds, empty for all.
        when: values for which it holds, None for all.
        unless: values of fields beside it, or of the pod's spec, with which it does not hold.
    """

    verdict: Verdict
    says: str = ""
    isolations: tuple[str, ...] = ()
    when: tuple[Any, ...] | None = None
    unless: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether it holds whatever the field has, so that nothing below matters."""
        return self.verdict != "honoured" and not self.isolations and self.when is None and not self.unless

    def holds(self, value: Any, *beside: Mapping[str, Any]) -> bool:
        """Whether it is about this value; ``beside`` are the objects that ``unless`` may name a field of."""
        if any(one.get(name) == wanted for name, wanted in self.unless.items() for one in beside):
            return False
        if self.when is None:
            return value is not False and value not in ("", [])
        if isinstance(value, dict | list):
            return any(one in value for one in self.when)
        return any(value == one and type(value) is type(one) for one in self.when)


@cache
def answers() -> dict[str, dict[str, FieldAnswer]]:
    """Return the answers by the short name of the message and the field. Cost: 3 ms, once."""
    found: dict[str, dict[str, FieldAnswer]] = {}
    for name, table in tomllib.loads(_TABLE.read_text(encoding="utf-8")).items():
        fields = found[name] = {one: FieldAnswer("honoured") for one in table["honoured"].split()}
        for verdict in ("refused", "warned"):
            for one, entry in table.get(verdict, {}).items():
                assert one not in fields, f"{name}.{one} has two answers"
                fields[one] = _answer(verdict, entry)
    return found


def _answer(verdict: Verdict, entry: str | dict[str, Any]) -> FieldAnswer:
    if isinstance(entry, str):
        return FieldAnswer(verdict, entry)
    when = entry.get("when")
    return FieldAnswer(
        verdict,
        entry["says"],
        tuple(entry.get("in", ())),
        None if when is None else tuple(when),
        entry.get("unless", {}),
    )


@cache
def _plan(name: str) -> dict[str, tuple[FieldAnswer, str, str]]:
    """Return the fields of a message that there is something to say of, or below which there may be.

    Each with its answer, its shape (see ``wire_types``) and the message below it, empty for none.
    """
    plan = {}
    known = answers().get(name.rpartition(".")[2], {})
    for one in message(name).by_name.values():
        answer = known.get(one.name, FieldAnswer("honoured"))
        below = one.type if one.is_message and not answer.is_whole and _plan(one.type) else ""
        if below or answer.verdict != "honoured":
            plan[one.name] = (answer, one.shape, below)
    return plan


def _found(value: Any, name: str, path: str, spec: Mapping[str, Any]) -> Iterator[tuple[str, FieldAnswer]]:
    if not isinstance(value, dict):
        return  # of the wrong type, which the check of types tells
    plan = _plan(name)
    for key in plan.keys() & value.keys():
        answer, shape, below = plan[key]
        item, place = value[key], f"{path}.{key}"
        if item is None:
            continue
        if answer.verdict != "honoured" and answer.holds(item, value, spec):
            yield place, answer
        if below and shape == "*" and isinstance(item, list):
            for index, one in enumerate(item):
                yield from _found(one, below, f"{place}[{index}]", spec)
        elif below and not shape and isinstance(item, dict):
            yield from _found(item, below, place, spec)


def refusals(spec: Mapping[str, Any], path: str, name: str = POD_SPEC) -> list[FieldError]:
    """Return what is refused of a pod's spec, or another message, at ``path``. Cost: 10 µs for a pod."""
    found = sorted(_found(spec, name, path, spec), key=lambda one: one[0])
    return [forbidden(place, answer.says) for place, answer in found if answer.verdict == "refused"]


def warnings(resource: Resource, obj: Mapping[str, Any], agent_report: Path) -> list[str]:
    """Return what an object's pods, or those of its templates, ask for in vain.

    Args:
        resource: its kind.
        obj: of the right types, unknown fields dropped.
        agent_report: what the node agent wrote about itself; read only where the mode matters.
    """
    found = []
    isolation = ""
    for path, spec in pod_specs(resource, obj):
        for place, answer in sorted(_found(spec, POD_SPEC, path, spec), key=lambda one: one[0]):
            if answer.verdict != "warned":
                continue
            if answer.isolations:
                isolation = isolation or _isolation(agent_report)
                if isolation not in answer.isolations:
                    continue
            found.append(f"{place}: {answer.says}")
    return found


def _isolation(agent_report: Path) -> str:
    try:
        return str(json.loads(agent_report.read_bytes()).get("isolation", "unknown"))
    except (OSError, ValueError):
        return "unknown"


def pod_specs(resource: Resource, obj: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the specs of pods in an object, with their paths: a pod's own, those of templates."""
    if resource in _TEMPLATES:
        yield from _at(obj, _TEMPLATES[resource], "")
        return
    for path in _paths(resource.group, resource.version, resource.kind):
        yield from _at(obj, path, "")


def _at(value: Any, path: tuple[str, ...], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(value, dict):
        return
    if not path:
        yield place, value
        return
    for key in value if path[0] == EACH else path[:1]:
        yield from _at(value.get(key), path[1:], f"{place}.{key}" if place else key)


@cache
def _paths(group: str, version: str, kind: str) -> tuple[tuple[str, ...], ...]:
    found = message_of_kind(group, version, kind)
    return tuple(_paths_in(found, ())) if found is not None else ()


def _paths_in(at: Message, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if at.name == POD_SPEC:
        yield path
    elif len(path) < _DEPTH_MAX:
        for one in at.by_name.values():
            if one.is_message and not one.shape:
                yield from _paths_in(message(one.type), (*path, one.name))
