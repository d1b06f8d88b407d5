"""Strategic merge patch: merge patch that joins the lists of built-in kinds by their keys.

Which lists are joined, and by what, stands in the tables of ``wire_types``; unlisted lists are replaced
whole, and so is everything of a kind that the tables lack (the caller answers 415 for custom kinds before it
comes here). Directives (``$patch``, ``$retainKeys``, ``$setElementOrder/...``,
``$deleteFromPrimitiveList/...``) are obeyed and never stored. Inputs are never changed.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from gangline.api.resources import Resource
from gangline.api.wire_types import Message, WireField, message, message_of_kind
from gangline.cluster.server.verbs.patch_error import PatchError

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_PLAIN = "$deleteFromPrimitiveList/"


def strategic_merge(resource: Resource, target: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return ``target`` with the strategic merge patch applied.

    Args:
        resource: the kind, which decides how lists are merged.
        target: the object as it is.
        patch: an object with any of the directives.

    Raises:
        PatchError: status 400 where the patch is no object or a directive is malformed, 422 where an item of
            a list that is merged by a key lacks the key.

    Cost: O(size of the patch + length of the joined lists).
    Source: the strategic merge patch document of Kubernetes; results agree with k8s.io/apimachinery.
    """
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch is an object", status=400)
    schema = message_of_kind(resource.group, resource.version, resource.kind)
    return _merge_object(target, patch, schema)


def _merge_object(target: Any, patch: dict[str, Any], schema: Message | None) -> dict[str, Any]:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: _plain(value) for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"unknown value `{directive}` of the patch directive `{_DIRECTIVE}`", status=400)
    result = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        retained = _identities(_list_of(patch[_RETAIN], _RETAIN))
        result = {key: value for key, value in result.items() if _identity(key) in retained}
    orders: dict[str, list[Any]] = {}
    for key, value in patch.items():
        if key in (_DIRECTIVE, _RETAIN):
            continue
        if key.startswith(_ORDER):
            orders[key.removeprefix(_ORDER)] = _list_of(value, key)
        elif key.startswith(_DELETE_PLAIN):
            name = key.removeprefix(_DELETE_PLAIN)
            gone = _identities(_list_of(value, key))
            if isinstance(result.get(name), list):
                result[name] = [item for item in result[name] if _identity(item) not in gone]
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_value(result.get(key), value, _field(schema, key))
    for key in patch.keys() | orders.keys():
        field = _field(schema, key)
        if field is None or field.merge_key is None or not isinstance(result.get(key), list):
            continue
        before = target.get(key) if isinstance(target, dict) else None
        order = orders.get(key, patch.get(key))
        if isinstance(order, list):
            result[key] = _ordered(result[key], order, before or [], field.merge_key)
    return result


def _field(schema: Message | None, key: str) -> WireField | None:
    if schema is None:
        return None
    if key == "metadata" and "metadata" not in schema.by_name:
        return None
    return schema.by_name.get(key)


def _child(field: WireField | None) -> Message | None:
    return message(field.type) if field is not None and field.is_message else None


def _merge_value(old: Any, value: Any, field: WireField | None) -> Any:
    if isinstance(value, dict):
        # A map of messages does not occur in the served kinds: the members of a map are plain values.
        schema = _child(field) if field is not None and field.shape != "%" else None
        return _merge_object(old, value, schema)
    if not isinstance(value, list):
        return value
    if field is None or field.merge_key is None:
        return [_plain(item) for item in value if not _is_directive(item)]
    existing = old if isinstance(old, list) else []
    if field.merge_key == "":
        known = _identities(existing)
        return [*existing, *(item for item in value if _identity(item) not in known)]
    return _merge_list(existing, value, field.merge_key, _child(field), field.name)


def _merge_list(
    old: list[Any], patch: list[Any], key: str, schema: Message | None, name: str
) -> list[dict[str, Any]]:
    """Return the list joined by ``key``: items of the patch change, add to or delete from the old ones."""
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [_plain(item) for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
    result: list[Any] = list(old)
    places: dict[str, list[int]] = {}
    for at, have in enumerate(result):
        if isinstance(have, dict) and key in have:
            places.setdefault(_identity(have[key]), []).append(at)
    gone: set[int] = set()
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            shown = msgspec.json.encode(item).decode()[:64]
            raise PatchError(f"map: {shown} does not contain declared merge key: {key} (list `{name}`)")
        found = places.setdefault(_identity(item[key]), [])
        if item.get(_DIRECTIVE) == "delete":
            gone.update(found)
            found.clear()
        elif found:
            result[found[0]] = _merge_object(result[found[0]], item, schema)
        else:
            found.append(len(result))
            result.append(_merge_object({}, item, schema))
    return [have for at, have in enumerate(result) if at not in gone] if gone else result


def _identity(value: Any) -> str:
    """Return a text that equal JSON values share, by which many are compared in one pass."""
    return repr(value)


def _identities(values: list[Any]) -> set[str]:
    return {_identity(value) for value in values}


def _ordered(items: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """Return the items in the order of the patch; those that the patch does not name go where they were.

    An unnamed item comes before the next named one only if it came before that one in the old list; hence new
    items of a patch without a demanded order come first.

    Args:
        items: the joined list.
        order: what the patch names, in its order: the demanded order, else the patch's own items.
        before: the list before the patch.
        key: merge key, empty for plain values.
    """

    def identity(item: Any) -> str:
        return _identity(item.get(key) if key and isinstance(item, dict) else item)

    ranks: dict[str, int] = {}
    for item in order:
        ranks.setdefault(identity(item), len(ranks))
    places = {identity(item): place for place, item in enumerate(before)}
    named = deque(
        sorted((item for item in items if identity(item) in ranks), key=lambda item: ranks[identity(item)])
    )
    rest = deque(item for item in items if identity(item) not in ranks)
    result: list[Any] = []
    while named and rest:
        left, right = places.get(identity(rest[0])), places.get(identity(named[0]))
        first = left is not None and right is not None and left < right
        result.append((rest if first else named).popleft())
    return [*result, *named, *rest]


def _is_directive(item: Any) -> bool:
    return isinstance(item, dict) and _DIRECTIVE in item and len(item) == 1


def _list_of(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise PatchError(f"the patch directive `{key}` must be a list", status=400)
    return value


def _plain(value: Any) -> Any:
    """Return a value that replaces another one, free of directives and, as in a merge patch, of nulls."""
    if isinstance(value, dict):
        return {
            key: _plain(item)
            for key, item in value.items()
            if item is not None
            and key not in (_DIRECTIVE, _RETAIN)
            and not key.startswith((_ORDER, _DELETE_PLAIN))
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
