"""A function in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a function in a thread and return the thread.

    Args:
        silent: let no exception of it be shown.
    """

    def call() -> None:
        try:
            target(*args)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread
