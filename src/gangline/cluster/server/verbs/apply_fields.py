"""Server-side apply as a function of values: who owns which fields, what a manifest makes of an object.

A field set is a tree in the notation of ``FieldsV1``: ``f:NAME`` a field, ``k:{...}`` an item of a list
joined by keys, ``v:VALUE`` a member of a set, ``.`` the item itself; an empty tree is a leaf. Inputs are
never changed.
"""

from __future__ import annotations

import json
from typing import Any

from gangline.cluster.server.verbs.apply_shapes import MergeShape

Tree = dict[str, Any]

_NOT_OWNED = ("f:apiVersion", "f:kind")
_NOT_OWNED_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def owned_fields(applied: dict[str, Any], shape: MergeShape) -> Tree:
    """Return the field set of a manifest, without what identifies the object."""
    tree = tree_of(applied, shape)
    for key in _NOT_OWNED:
        tree.pop(key, None)
    metadata = tree.get("f:metadata", {})
    for key in _NOT_OWNED_METADATA:
        metadata.pop(f"f:{key}", None)
    if not metadata:
        tree.pop("f:metadata", None)
    return tree


def tree_of(value: Any, shape: MergeShape) -> Tree:
    """Return the field set of a value."""
    if isinstance(value, dict) and not shape.is_atomic_map:
        return {
            f"f:{key}": tree_of(item, shape.child(key)) if isinstance(item, dict | list) else {}
            for key, item in value.items()
        }
    if isinstance(value, list):
        if shape.is_set:
            return {_member(item): {} for item in value}
        if shape.keys:
            items = {shape.key_of(item): item for item in value}
            if None not in items:
                return {str(key): {".": {}, **tree_of(item, shape.item)} for key, item in items.items()}
    return {}


def _member(value: Any) -> str:
    return "v:" + json.dumps(value, separators=(",", ":"))


def merged(live: Any, applied: Any, shape: MergeShape) -> Any:
    """Return the live value with the applied one merged into it."""
    if isinstance(applied, dict) and isinstance(live, dict) and not shape.is_atomic_map:
        result = dict(live)
        for key, value in applied.items():
            result[key] = merged(live[key], value, shape.child(key)) if key in live else value
        return result
    if isinstance(applied, list) and isinstance(live, list):
        if shape.is_set:
            return [*live, *(item for item in applied if item not in live)]
        if shape.keys:
            return _merged_list(live, applied, shape)
    return applied


def _merged_list(live: list[Any], applied: list[Any], shape: MergeShape) -> list[Any]:
    wanted = {shape.key_of(item): item for item in applied}
    present = {shape.key_of(item) for item in live}
    if None in wanted or None in present:
        return applied
    result = []
    for item in live:
        key = shape.key_of(item)
        result.append(merged(item, wanted[key], shape.item) if key in wanted else item)
    return result + [item for key, item in wanted.items() if key not in present]


def minus(tree: Tree, other: Tree) -> Tree:
    """Return what is in ``tree`` and not in ``other``; leaves of ``other`` take nothing below them away."""
    result: Tree = {}
    for key, below in tree.items():
        if key not in other:
            result[key] = below
        elif below and (rest := minus(below, other[key])):
            result[key] = rest
    return result


def conflicts(applied: Any, live: Any, shape: MergeShape, theirs: Tree) -> Tree:
    """Return the fields of ``theirs`` that the manifest would change."""
    result: Tree = {}
    if isinstance(applied, dict) and not shape.is_atomic_map:
        before = live if isinstance(live, dict) else {}
        for key, value in applied.items():
            name = f"f:{key}"
            if name in theirs:
                _add_conflict(result, name, value, before.get(key), shape.child(key), theirs[name])
    elif isinstance(applied, list) and shape.keys:
        items = {shape.key_of(item): item for item in live} if isinstance(live, list) else {}
        for item in applied:
            key_name = shape.key_of(item)
            if key_name is not None and key_name in theirs:
                below = conflicts(item, items.get(key_name), shape.item, theirs[key_name])
                if below:
                    result[key_name] = below
    return result


def _add_conflict(result: Tree, name: str, value: Any, live: Any, shape: MergeShape, theirs: Tree) -> None:
    if theirs and isinstance(value, dict | list):
        if below := conflicts(value, live, shape, theirs):
            result[name] = below
    elif value != live and not (isinstance(value, dict) and isinstance(live, dict)):
        result[name] = {}


def without(value: Any, gone: Tree, kept: Tree, shape: MergeShape) -> Any:
    """Return the value without the fields of ``gone``, save those that somebody else keeps."""
    if isinstance(value, dict):
        result = dict(value)
        for name, below in gone.items():
            key = name[2:]
            if not name.startswith("f:") or key not in result:
                continue
            others = kept.get(name)
            if not below:
                if others is None:
                    del result[key]
                continue
            result[key] = without(result[key], below, others or {}, shape.child(key))
            if result[key] in ({}, []) and others is None:
                del result[key]
        return result
    if isinstance(value, list):
        if shape.is_set:
            return [item for item in value if _member(item) not in gone or _member(item) in kept]
        return _list_without(value, gone, kept, shape)
    return value


def _list_without(items: list[Any], gone: Tree, kept: Tree, shape: MergeShape) -> list[Any]:
    result = []
    for item in items:
        key = shape.key_of(item) or ""
        below = gone.get(key)
        if below is None:
            result.append(item)
        elif "." not in below or key in kept:
            keys: Tree = {f"f:{name}": {} for name in shape.keys}
            result.append(without(item, below, {**keys, **kept.get(key, {})}, shape.item))
    return result


def union(trees: list[Tree]) -> Tree:
    """Return the fields of any of the trees."""
    result: Tree = {}
    for tree in trees:
        for key, below in tree.items():
            result[key] = union([result[key], below]) if key in result else below
    return result


def paths(tree: Tree, prefix: str = "") -> list[str]:
    """Return the leaves of a field set as messages write them: ``.spec.x[name="a"].image``."""
    found: list[str] = []
    for key, below in tree.items():
        if key == ".":
            continue
        if key.startswith("f:"):
            here = f"{prefix}.{key[2:]}"
        elif key.startswith("k:"):
            terms = (f"{name}={json.dumps(value)}" for name, value in json.loads(key[2:]).items())
            here = f"{prefix}[{','.join(terms)}]"
        else:
            here = f"{prefix}[={key[2:]}]"
        found += paths(below, here) if below and below != {".": {}} else [here]
    return found
