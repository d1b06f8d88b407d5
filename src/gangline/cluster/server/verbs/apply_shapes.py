"""What server-side apply must know of a kind: which lists are joined by keys, which are sets.

Built-in kinds tell it by the tables of ``wire_types``, custom kinds by their schema; where neither says
anything, maps are merged and lists are replaced, as the API's conventions want.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import msgspec

from gangline.api.wire_types import OBJECT_META, Message, WireField, message, message_of_kind
from gangline.cluster.server.resources import ServedResource

_SECOND_KEYS = {"port": "protocol", "containerPort": "protocol"}
"""Ports are told apart by protocol too; it may be left out."""
_KEY_DEFAULTS = {"protocol": "TCP"}


class MergeShape:
    """How one value is merged. Without a table and a schema: maps by field, lists whole.

    Args:
        message: table of a built-in message, for objects.
        field: table entry of a list or map field.
        schema: schema of a custom kind's value.

    Attributes:
        is_atomic_map: whether an object here is replaced whole.
        is_set: whether a list here is a set of plain values.
        keys: the keys by which items of this list are told apart; empty when it is not joined by keys.
    """

    def __init__(
        self,
        message: Message | None = None,
        field: WireField | None = None,
        schema: dict[str, Any] | None = None,
    ) -> None:
        self._message = message
        self._field = field
        self._schema = schema
        self._children: dict[str, MergeShape] = {}
        list_type = schema.get("x-kubernetes-list-type") if schema is not None else None
        self.is_atomic_map = schema is not None and schema.get("x-kubernetes-map-type") == "atomic"
        self.is_set = list_type == "set"
        self.keys: tuple[str, ...] = ()
        if schema is not None and list_type == "map":
            self.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        elif field is not None:
            self.is_set = field.merge_key == ""
            if key := field.merge_key:
                self.keys = (key, _SECOND_KEYS[key]) if key in _SECOND_KEYS else (key,)

    def child(self, key: str) -> MergeShape:
        """Return the shape of a field of this object."""
        found = self._children.get(key)
        return self._find(key) if found is None else found

    def _find(self, key: str) -> MergeShape:
        found = _PLAIN
        if self._message is not None and (known := self._message.by_name.get(key)) is not None:
            found = self._children[key] = _shape_of_field(known)
        elif self._schema is not None:
            schema = (self._schema.get("properties") or {}).get(key)
            if schema is None:
                return self._member
            if isinstance(schema, dict):
                found = self._children[key] = MergeShape(schema=schema)
        return found

    @cached_property
    def _member(self) -> MergeShape:
        """The shape of the members of this map that have no schema of their own."""
        found = self._schema.get("additionalProperties") if self._schema is not None else None
        return MergeShape(schema=found) if isinstance(found, dict) else _PLAIN

    @cached_property
    def item(self) -> MergeShape:
        """The shape of the items of this list."""
        if self._field is not None and self._field.is_message:
            return _shape_of_message(self._field.type)
        if self._schema is not None and isinstance(self._schema.get("items"), dict):
            return MergeShape(schema=self._schema["items"])
        return _PLAIN

    def key_of(self, item: Any) -> str | None:
        """Return an item's name in a field set, ``k:{"name":"main"}``; None when it lacks its keys."""
        if not isinstance(item, dict):
            return None
        values = {key: item[key] if key in item else self._default(key) for key in self.keys}
        if any(value is None for value in values.values()):
            return None
        return "k:" + msgspec.json.encode(values, order="sorted").decode()

    def _default(self, key: str) -> Any:
        if self._schema is not None:
            properties = (self._schema.get("items") or {}).get("properties") or {}
            return (properties.get(key) or {}).get("default")
        return _KEY_DEFAULTS.get(key)


_PLAIN = MergeShape()


@cache
def _shape_of_message(name: str) -> MergeShape:
    return MergeShape(message=message(name))


def _shape_of_field(field: WireField) -> MergeShape:
    if field.shape:
        return MergeShape(field=field)
    return _shape_of_message(field.type) if field.is_message else _PLAIN


@cache
def _shape_of_kind(group: str, version: str, kind: str) -> MergeShape:
    return _root(MergeShape(message=message_of_kind(group, version, kind)))


def _root(shape: MergeShape) -> MergeShape:
    """Return the shape of a whole object: ``metadata`` is the same for every kind."""
    shape._children["metadata"] = _shape_of_message(OBJECT_META)
    return shape


def shape_of(served: ServedResource) -> MergeShape:
    """Return the shape of the objects of a kind."""
    if served.is_custom:
        return _root(MergeShape(schema=served.schema))
    resource = served.resource
    return _shape_of_kind(resource.group, resource.version, resource.kind)
