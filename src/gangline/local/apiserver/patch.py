"""Merge patch (RFC 7386) and JSON patch (RFC 6902) on wire objects.

Inputs are never changed: results share what the patch left alone with the target. Strategic merge has a file
of its own and is offered from here, so that callers find the three kinds in one place.
"""

from __future__ import annotations

from typing import Any

from gangline.local.apiserver.patch_error import PatchError
from gangline.local.apiserver.strategic import strategic_merge

__all__ = ["PatchError", "json_patch", "merge_patch", "strategic_merge"]

OPERATIONS_MAX = 10_000
"""Operations in one JSON patch; a real server has the same limit."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with the merge patch applied: null deletes, objects merge, all else replaces.

    Cost: O(size of the patch and of the objects on its paths).
    Source: RFC 7386.
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """Return ``target`` with the operations applied in order, or raise without any effect.

    Raises:
        PatchError: status 400 where the patch has the wrong shape, 422 where it does not fit the target (a
            missing path, an index out of range, a failed test).

    Cost: O(operations x width of the objects and lists on each path).
    Source: RFC 6902, RFC 6901.
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations", status=400)
    if len(operations) > OPERATIONS_MAX:
        raise PatchError(
            f"a JSON patch has at most {OPERATIONS_MAX} operations, found {len(operations)}", status=400
        )
    for number, operation in enumerate(operations):
        target = _apply(target, operation, number)
    return target


def _apply(document: Any, operation: Any, number: int) -> Any:
    if not isinstance(operation, dict):
        raise PatchError(f"operation {number} of the JSON patch is no object", status=400)
    name = operation.get("op")
    path = _pointer(operation, "path", number)
    if name == "remove":
        return _remove(document, path)[0]
    if name in ("add", "replace", "test"):
        if "value" not in operation:
            raise PatchError(f"operation {number} of the JSON patch (`{name}`) has no `value`", status=400)
        value = operation["value"]
        if name == "add":
            return _add(document, path, value)
        if name == "replace":
            return _replace(document, path, value)
        if not _equal(_get(document, path), value):
            raise PatchError(f"testing value {operation['path']} failed")
        return document
    if name == "copy":
        return _add(document, path, _get(document, _pointer(operation, "from", number)))
    if name == "move":
        source = _pointer(operation, "from", number)
        if len(source) < len(path) and path[: len(source)] == source:
            raise PatchError(f"operation {number} of the JSON patch moves a value into itself")
        rest, value = _remove(document, source)
        return _add(rest, path, value)
    raise PatchError(f"operation {number} of the JSON patch has the unknown `op` `{name}`", status=400)


def _pointer(operation: dict[str, Any], key: str, number: int) -> list[str]:
    text = operation.get(key)
    if not isinstance(text, str):
        raise PatchError(f"operation {number} of the JSON patch has no `{key}`", status=400)
    if text == "":
        return []
    if not text.startswith("/"):
        raise PatchError(f"`{text}` is no JSON pointer: it begins without `/`", status=400)
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(items: list[Any], token: str, *, end: int) -> int:
    """Return the list index that the token names, below ``end``; ``-`` is the place after the last item."""
    if token == "-" and end > len(items):
        return len(items)
    if not token.isascii() or not token.isdigit() or (token[0] == "0" and token != "0"):
        raise PatchError(f"`{token}` is no list index")
    index = int(token)
    if index >= end:
        raise PatchError(f"list index {index} is out of range: the list has {len(items)} items")
    return index


def _step(document: Any, token: str) -> Any:
    if isinstance(document, dict):
        if token not in document:
            raise PatchError(f"the path has a missing key: `{token}`")
        return document[token]
    if isinstance(document, list):
        return document[_index(document, token, end=len(document))]
    raise PatchError(f"the path goes through a value that is no object and no list, at `{token}`")


def _get(document: Any, path: list[str]) -> Any:
    for token in path:
        document = _step(document, token)
    return document


def _with(document: Any, token: str, value: Any) -> Any:
    """Return a copy of an object or list with one existing member replaced."""
    if isinstance(document, dict):
        return {**document, token: value}
    index = int(token)
    return [*document[:index], value, *document[index + 1 :]]


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    token = path[0]
    if len(path) > 1:
        return _with(document, token, _add(_step(document, token), path[1:], value))
    if isinstance(document, dict):
        return {**document, token: value}
    if isinstance(document, list):
        index = _index(document, token, end=len(document) + 1)
        return [*document[:index], value, *document[index:]]
    raise PatchError(f"a value cannot be added at `{token}`: its parent is no object and no list")


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    return _with(document, path[0], _replace(_step(document, path[0]), path[1:], value))


def _remove(document: Any, path: list[str]) -> tuple[Any, Any]:
    """Return the document without the value at the path, and that value."""
    if not path:
        return None, document
    token = path[0]
    child = _step(document, token)
    if len(path) > 1:
        rest, value = _remove(child, path[1:])
        return _with(document, token, rest), value
    if isinstance(document, dict):
        return {key: item for key, item in document.items() if key != token}, child
    index = int(token)
    return [*document[:index], *document[index + 1 :]], child


def _equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal; unlike Python, ``1`` and ``true`` are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
