"""What server-side apply must know of a kind: which lists are joined by keys, which are sets.

Built-in kinds tell it by the tables of ``wire_types``, custom kinds by their schema; where neither says
anything, maps are merged and lists are replaced, as the API's conventions want.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from gangline.api.wire_types import OBJECT_META, Message, WireField, message, message_of_kind
from gangline.cluster.server.resources import ServedResource

_SECOND_KEYS = {"port": "protocol", "containerPort": "protocol"}
"""Ports are told apart by protocol too; it may be left out."""
_KEY_DEFAULTS = {"protocol": "TCP"}


@dataclass(frozen=True, slots=True)
class MergeShape:
    """How one value is merged. Without a table and a schema: maps by field, lists whole.

    Attributes:
        message: table of a built-in message, for objects.
        field: table entry of a list or map field.
        schema: schema of a custom kind's value.
    """

    message: Message | None = None
    field: WireField | None = None
    schema: dict[str, Any] | None = None

    def child(self, key: str) -> MergeShape:
        """Return the shape of a field of this object."""
        if self.message is not None:
            found = self.message.by_name.get(key)
            return _PLAIN if found is None else _shape_of_field(found)
        if self.schema is not None:
            properties = self.schema.get("properties") or {}
            found_schema = properties.get(key, self.schema.get("additionalProperties"))
            return MergeShape(schema=found_schema) if isinstance(found_schema, dict) else _PLAIN
        return _PLAIN

    @property
    def item(self) -> MergeShape:
        """Return the shape of the items of this list."""
        if self.field is not None and self.field.is_message:
            return _shape_of_message(self.field.type)
        if self.schema is not None and isinstance(self.schema.get("items"), dict):
            return MergeShape(schema=self.schema["items"])
        return _PLAIN

    @property
    def is_atomic_map(self) -> bool:
        """Whether an object here is replaced whole."""
        return self.schema is not None and self.schema.get("x-kubernetes-map-type") == "atomic"

    @property
    def is_set(self) -> bool:
        """Whether a list here is a set of plain values."""
        if self.field is not None:
            return self.field.merge_key == ""
        return self.schema is not None and self.schema.get("x-kubernetes-list-type") == "set"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which items of this list are told apart; empty when it is not joined by keys."""
        if self.field is not None:
            key = self.field.merge_key
            if not key:
                return ()
            return (key, _SECOND_KEYS[key]) if key in _SECOND_KEYS else (key,)
        if self.schema is not None and self.schema.get("x-kubernetes-list-type") == "map":
            return tuple(self.schema.get("x-kubernetes-list-map-keys") or ())
        return ()

    def key_of(self, item: Any) -> str | None:
        """Return an item's name in a field set, ``k:{"name":"main"}``; None when it lacks its keys."""
        if not isinstance(item, dict):
            return None
        values = {key: item[key] if key in item else self._default(key) for key in self.keys}
        if any(value is None for value in values.values()):
            return None
        return "k:" + msgspec.json.encode(values, order="sorted").decode()

    def _default(self, key: str) -> Any:
        if self.schema is not None:
            properties = (self.schema.get("items") or {}).get("properties") or {}
            return (properties.get(key) or {}).get("default")
        return _KEY_DEFAULTS.get(key)


_PLAIN = MergeShape()


@cache
def _shape_of_message(name: str) -> MergeShape:
    return MergeShape(message=message(name))


@cache
def _shape_of_field(field: WireField) -> MergeShape:
    if field.shape:
        return MergeShape(field=field)
    return _shape_of_message(field.type) if field.is_message else _PLAIN


@dataclass(frozen=True, slots=True)
class RootShape(MergeShape):
    """The shape of a whole object: ``metadata`` is the same for every kind."""

    def child(self, key: str) -> MergeShape:
        """Return the shape of a top-level field."""
        if key == "metadata":
            return _shape_of_message(OBJECT_META)
        return MergeShape.child(self, key)


def shape_of(served: ServedResource) -> MergeShape:
    """Return the shape of the objects of a kind."""
    if served.is_custom:
        return RootShape(schema=served.schema)
    resource = served.resource
    return RootShape(message=message_of_kind(resource.group, resource.version, resource.kind))
