"""Decodes JSON however deep it is nested: servers take 10,000 levels, Python's limit stops at about 1,000.

One object that a user nests so deep would otherwise make the list of its whole kind unreadable.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from gangline.kube.errors import ServerError

depth_max = 10_000
"""Levels that a Kubernetes API server takes."""

_stack_bytes = 256 << 20
_levels_for_python = 3
"""Nested calls for each level, at most."""

T = TypeVar("T")
_lock = threading.Lock()


def decode_json(decode: Callable[[Any], T], data: bytes | msgspec.Raw) -> T:
    """Call a decoder of msgspec; again with more room where the nesting needs it, which is rare and slow.

    Raises:
        MsgspecError: the text is no JSON, or does not fit the type.
        ServerError: it is nested deeper than any server takes.
    """
    try:
        return decode(data)
    except RecursionError:
        return _decode_with_room(decode, data)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let the collector not run in the block, which must not wait for others; it runs after it as before.

    It starts after every 700 new objects, and looks at all there are again and again: 22 of 34 µs for each
    pod that is decoded.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decode_with_room(decode: Callable[[Any], T], data: bytes | msgspec.Raw) -> T:
    """Decode in a thread whose stack holds the nested calls, while the limit is lifted."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(decode(data))
        except Exception as error:  # noqa: BLE001  # handed over to the caller
            errors.append(error)

    with _lock:
        stack_before, limit_before = threading.stack_size(_stack_bytes), sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit_before, _levels_for_python * depth_max))
        try:
            thread = threading.Thread(target=run, name="deep-json")
            thread.start()
            thread.join()
        finally:
            sys.setrecursionlimit(limit_before)
            threading.stack_size(stack_before)
    if results:
        return results[0]
    if isinstance(errors[0], RecursionError):
        raise ServerError(0, "", "an object is nested too deep to be read") from errors[0]
    raise errors[0]
