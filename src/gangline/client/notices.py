"""What is told beside a result: one line for people at a time, to whoever asked."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Takes a line; the command line prints it on standard error."""


def silent(line: str) -> None:
    """Tell nobody."""
