"""Who wrote which fields: the entries of ``metadata.managedFields`` that creates, updates and patches leave.

An entry has the fields that its manager wrote last; writing a field takes it from whoever had it. Server-side
apply (``applying.py``) reads the entries to find conflicts. Field sets are stored as JSON text
(``msgspec.Raw``), for nobody looks into one until somebody applies: as values they would take more memory
than the object. Inputs are never changed.

Source: k8s.io/apimachinery managedfields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from gangline import clock
from gangline.cluster.server.http.request_context import RequestContext
from gangline.cluster.server.resources import ServedResource
from gangline.cluster.server.verbs.apply_fields import Tree, minus, tree_of, union
from gangline.cluster.server.verbs.apply_shapes import MergeShape, shape_of

MANAGER_MAX = 128
UPDATERS_MAX = 10
"""Entries of updates on one object; older ones are joined."""
OLDER = "ancient-changes"
"""The name under which they are joined."""

Entry = dict[str, Any]
_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
"""Fields of ``metadata`` that have managers."""
_UNMANAGED = ("apiVersion", "kind", "metadata")


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes, how, and to what part: two managers when the subresources differ."""

    name: str
    subresource: str = ""
    operation: str = "Update"

    def owns(self, entry: Entry) -> bool:
        """Whether an entry of ``managedFields`` is this manager's."""
        return (entry.get("manager"), entry.get("subresource", ""), entry.get("operation")) == (
            self.name,
            self.subresource,
            self.operation,
        )

    def entry(self, served: ServedResource, fields: Tree) -> Entry:
        """Return this manager's entry, written now."""
        entry = _stored(
            {
                "manager": self.name,
                "operation": self.operation,
                "apiVersion": served.resource.api_version,
                "time": clock.format_time(clock.now()),
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }
        )
        return entry | ({"subresource": self.subresource} if self.subresource else {})


def updater(context: RequestContext) -> Manager:
    """Return the manager of a write: ``fieldManager``, or the name of the program."""
    name = context.query.get("fieldManager") or context.request.headers.get("User-Agent", "").split("/")[0]
    return Manager((name or "unknown")[:MANAGER_MAX], context.target.subresource)


def fields_of(entry: Entry) -> Tree:
    """Return the field set of an entry as a value; one that cannot be read is empty."""
    fields = entry.get("fieldsV1")
    if isinstance(fields, msgspec.Raw):
        fields = msgspec.json.decode(fields)
    return fields if isinstance(fields, dict) else {}


def _plain(entry: Entry) -> Entry:
    return {**entry, "fieldsV1": fields_of(entry)}


def _stored(entry: Entry) -> Entry:
    return {**entry, "fieldsV1": msgspec.Raw(msgspec.json.encode(fields_of(entry)))}


def created(served: ServedResource, obj: dict[str, Any], manager: Manager) -> list[Entry]:
    """Return the entries of a new object. Cost: some 60 µs for a pod."""
    shape = shape_of(served)
    fields = tree_of(_managed(served, obj, ""), shape)
    return [manager.entry(served, fields)] if fields else []


def updated(
    served: ServedResource, old: dict[str, Any], new: dict[str, Any], manager: Manager, given: Any = None
) -> list[Entry]:
    """Return the entries of an object after a write.

    Args:
        served: the kind.
        old: the object before.
        new: the object after.
        manager: who wrote.
        given: the entries in what was sent; whoever sends some decides what is known so far, and a single
            empty one forgets everything.

    Cost: O(what has changed), and decoding the entries that lose something.
    """
    entries: list[Entry] = old["metadata"].get("managedFields") or []
    if given is not entries and isinstance(given, list) and given:
        sent = [entry for entry in given if isinstance(entry, dict) and entry]
        if [_plain(entry) for entry in sent] != [_plain(entry) for entry in entries]:
            entries = [_stored(entry) for entry in sent]
    written, gone = _difference(
        _managed(served, old, manager.subresource),
        _managed(served, new, manager.subresource),
        shape_of(served),
    )
    if not written and not gone:
        return entries
    taken = union([written, gone])
    mine: Tree = {}
    result = []
    for entry in entries:
        before = fields_of(entry)
        if manager.owns(entry):
            mine = minus(before, gone)
            continue
        after = minus(before, taken)
        if after != before:
            entry = _stored({**entry, "fieldsV1": after})
        if after:
            result.append(entry)
    if mine := union([mine, written]):
        result.append(manager.entry(served, mine))
    return _bounded(result)


def _bounded(entries: list[Entry]) -> list[Entry]:
    updates = [entry for entry in entries if entry.get("operation") == "Update"]
    if len(updates) <= UPDATERS_MAX:
        return entries
    older = sorted(updates, key=lambda entry: str(entry.get("time")))[: len(updates) - UPDATERS_MAX + 1]
    fields = union([fields_of(entry) for entry in older])
    joined = _stored({**older[-1], "manager": OLDER, "fieldsV1": fields})
    return [joined, *(entry for entry in entries if not any(entry is one for one in older))]


def _managed(served: ServedResource, obj: dict[str, Any], subresource: str) -> dict[str, Any]:
    """Return the part of an object that a write to it, or to a subresource of it, can own."""
    metadata = obj["metadata"]
    result: dict[str, Any] = {key: value for key, value in obj.items() if key not in _UNMANAGED}
    if not subresource and "status" in served.subresources:
        result.pop("status", None)
    if found := {key: metadata[key] for key in _METADATA if metadata.get(key)}:
        result["metadata"] = found
    return result


def _difference(old: Any, new: Any, shape: MergeShape) -> tuple[Tree, Tree]:
    """Return the fields of ``new`` that ``old`` has not or has otherwise, and those that are gone."""
    written: Tree = {}
    gone: Tree = {}
    if isinstance(old, dict):
        names = old.keys() | new.keys()
        pairs = {f"f:{key}": (old.get(key), new.get(key), shape.child(key)) for key in names}
    else:
        olds = {shape.key_of(item): item for item in old}
        news = {shape.key_of(item): item for item in new}
        pairs = {str(key): (olds.get(key), news.get(key), shape.item) for key in olds.keys() | news.keys()}
    is_item = not isinstance(old, dict)
    for name, (before, after, below) in pairs.items():
        if before is after or before == after:
            continue
        whole: Tree = {".": {}} if is_item else {}
        if after is None:
            gone[name] = whole | tree_of(before, below)
        elif before is None:
            written[name] = whole | tree_of(after, below)
        elif _is_joined(before, after, below):
            more, less = _difference(before, after, below)
            if more:
                written[name] = more
            if less:
                gone[name] = less
        else:
            written[name] = tree_of(after, below)
            if removed := minus(tree_of(before, below), written[name]):
                gone[name] = removed
    return written, gone


def _is_joined(before: Any, after: Any, shape: MergeShape) -> bool:
    """Whether two values are compared part by part."""
    if isinstance(before, dict) and isinstance(after, dict):
        return not shape.is_atomic_map
    if not (isinstance(before, list) and isinstance(after, list) and shape.keys):
        return False
    return all(shape.key_of(item) is not None for item in (*before, *after))
