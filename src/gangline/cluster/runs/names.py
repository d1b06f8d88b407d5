"""Names of runs: that of the script, with a number from the second run on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count

NAME_CHARS_MAX = 40
"""Of a name that Gangline makes: names of pods and hosts are made of it."""


def names_after(base: str, taken: Collection[str]) -> Iterator[str]:
    """Yield the names that a run may have, the nearest first: ``train``, ``train-2``, ``train-3``, ...

    A number is not given again while a run of a higher one is known, so that later runs sort behind.

    >>> next(names_after("train", {"train", "train-3"}))
    'train-4'
    """
    numbers = [int(end) for name in taken if (end := _number(name, base))]
    if base not in taken and not numbers:
        yield base
    for number in count(max([1, *numbers]) + 1):
        end = f"-{number}"
        yield base[: NAME_CHARS_MAX - len(end)].rstrip("-") + end


def _number(name: str, base: str) -> str:
    """Return the number behind a base name, cut where the number needs its place; empty for another name."""
    head, dash, end = name.rpartition("-")
    if not dash or not end.isdigit() or end.startswith("0"):
        return ""
    return end if head == base[: NAME_CHARS_MAX - len(end) - 1].rstrip("-") else ""
