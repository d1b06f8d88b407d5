"""JSON patch (RFC 6902) on wire objects.

Inputs are never changed: results share what the patch left alone with the target. Merge patch and strategic
merge have files of their own and are offered from here, so that callers find the three kinds in one place.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangline.cluster.server.verbs.patch_error import PatchError
from gangline.cluster.server.verbs.strategic_merge import strategic_merge
from gangline.kube.apply import merge_patch

__all__ = ["PatchError", "json_patch", "merge_patch", "strategic_merge"]

OPERATIONS_MAX = 10_000
"""Operations in one JSON patch; a real server has the same limit."""

COPIED_BYTES_MAX = 3 << 20
"""JSON that ``copy`` operations of one patch copy; a real server has the same limit."""


def json_patch(target: Any, operations: Any) -> Any:
    """Return ``target`` with the operations applied in order, or raise without any effect.

    Raises:
        PatchError: status 400 where the patch has the wrong shape, 413 where it has too many operations or
            copies too much, 422 where it does not fit the target (a missing path, an index out of range, a
            failed test).

    Cost: O(operations x length of the paths + width of the objects and lists on them).
    Source: RFC 6902, RFC 6901.
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations", status=400)
    if len(operations) > OPERATIONS_MAX:
        message = f"the allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {len(operations)}"
        raise PatchError(message, status=413)
    patched = _Patched(target)
    for number, operation in enumerate(operations):
        patched.apply(operation, number)
    return patched.document


class _Patched:
    """A document under change. Objects and lists are copied when they are first changed, once."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._own: dict[int, Any] = {}
        """The copies by their ``id``; kept here, so that no id is used twice."""
        self._copied_bytes = 0

    def apply(self, operation: Any, number: int) -> None:
        if not isinstance(operation, dict):
            raise PatchError(f"operation {number} of the JSON patch is no object", status=400)
        name = operation.get("op")
        path = _pointer(operation, "path", number)
        if name == "remove":
            self._remove(path)
        elif name in ("add", "replace", "test"):
            if "value" not in operation:
                message = f"operation {number} of the JSON patch (`{name}`) has no `value`"
                raise PatchError(message, status=400)
            value = operation["value"]
            if name == "test":
                if not _equal(_get(self.document, path), value):
                    raise PatchError(f"testing value {operation['path']} failed")
            else:
                self._put(path, value, is_new=name == "add")
        elif name == "copy":
            found = _get(self.document, _pointer(operation, "from", number))
            self._put(path, self._copied(found), is_new=True)
        elif name == "move":
            source = _pointer(operation, "from", number)
            if len(source) < len(path) and path[: len(source)] == source:
                raise PatchError(f"operation {number} of the JSON patch moves a value into itself")
            self._put(path, self._remove(source), is_new=True)
        else:
            message = f"operation {number} of the JSON patch has the unknown `op` `{name}`"
            raise PatchError(message, status=400)

    def _copied(self, value: Any) -> Any:
        """Return a copy of a value, which counts: a patch that copies its copies doubles with each."""
        text = msgspec.json.encode(value)
        self._copied_bytes += len(text)
        if self._copied_bytes > COPIED_BYTES_MAX:
            raise PatchError(
                f"the `copy` operations of the JSON patch copy more than {COPIED_BYTES_MAX} bytes "
                f"(found {self._copied_bytes})",
                status=413,
            )
        return msgspec.json.decode(text)

    def _changeable(self, container: Any) -> Any:
        """Return a container that belongs to this document alone."""
        if id(container) in self._own:
            return container
        copy = dict(container) if isinstance(container, dict) else list(container)
        self._own[id(copy)] = copy
        return copy

    def _parent(self, path: list[str]) -> Any:
        """Return the container that holds the last part of a path, changeable like all on the way."""
        if not isinstance(self.document, dict | list):
            _step(self.document, path[0])
        parent = self.document = self._changeable(self.document)
        for token in path[:-1]:
            child = _step(parent, token)
            if not isinstance(child, dict | list):
                raise PatchError(f"a value cannot be at `{path[-1]}`: its parent is no object and no list")
            own = self._changeable(child)
            if own is not child:
                parent[token if isinstance(parent, dict) else int(token)] = own
            parent = own
        return parent

    def _put(self, path: list[str], value: Any, *, is_new: bool) -> None:
        if not path:
            self.document = value
            return
        parent, token = self._parent(path), path[-1]
        if not is_new:
            _step(parent, token)
        if isinstance(parent, dict):
            parent[token] = value
        elif is_new:
            parent.insert(_index(parent, token, end=len(parent) + 1), value)
        else:
            parent[_index(parent, token, end=len(parent))] = value

    def _remove(self, path: list[str]) -> Any:
        """Take a value out and return it."""
        if not path:
            found, self.document = self.document, None
            return found
        _get(self.document, path)
        parent, token = self._parent(path), path[-1]
        return parent.pop(token if isinstance(parent, dict) else int(token))


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
    index = int(token) if len(token) < 10 else end
    if index >= end:
        raise PatchError(f"list index {token[:20]} is out of range: the list has {len(items)} items")
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


def _equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal; unlike Python, ``1`` and ``true`` are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
