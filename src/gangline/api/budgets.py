"""What one body may cost: bounds that hold before anything is built of it.

A few bytes can ask for gigabytes: nested brackets, aliases of aliases, a patch that copies a copy. Whoever
builds values from text of others counts with a ``Budget`` while it builds, and stops with a ``BudgetError``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gangline.errors import ManifestError


class Budget(msgspec.Struct, frozen=True):
    """Bounds of one document.

    Attributes:
        bytes_max: bytes of the text.
        levels_max: objects and lists in one another.
        values_max: values (objects, lists, keys apart), an alias counted as often as it is used.
        expanded_bytes_max: bytes of all texts, an alias counted as often as it is used.
    """

    bytes_max: int
    levels_max: int
    values_max: int
    expanded_bytes_max: int


BODY: Final = Budget(bytes_max=3 << 20, levels_max=400, values_max=400_000, expanded_bytes_max=3 << 20)
"""Bodies of requests. The bytes are those of a real API server; the largest published definition of
a kind has 60,000 values, and 400,000 take half a second of one core to validate."""

MANIFEST: Final = Budget(
    bytes_max=16 << 20, levels_max=100, values_max=1_000_000, expanded_bytes_max=64 << 20
)
"""Files of the command line, which may hold many objects."""


class BudgetError(ManifestError):
    """A text asks for more than its budget.

    Attributes:
        budget: ``bytes``, ``levels``, ``values`` or ``expanded bytes``.
        limit: the bound.
        found: what was counted when counting stopped.
    """

    code = "over-budget"

    def __init__(self, budget: str, limit: int, found: int, *, where: str = "") -> None:
        rule, hint = _WORDS[budget]
        super().__init__(rule.format(limit=f"{limit:,}", found=f"{found:,}"), where=where, hint=hint)
        self.budget = budget
        self.limit = limit
        self.found = found


_WORDS: Final = {
    "bytes": ("at most {limit} bytes are read, found {found}", "put fewer objects into one file or request"),
    "levels": ("values are nested more than {limit} deep", "nest them less deeply"),
    "values": (
        "the document has more than {limit} values, aliases counted (found {found})",
        "put fewer objects into one document, or repeat less by aliases",
    ),
    "expanded bytes": (
        "the texts of the document, aliases counted, are longer than {limit} bytes (found {found})",
        "repeat less by aliases",
    ),
}


def check_size(size_bytes: int, budget: Budget, *, where: str = "") -> None:
    """Refuse a text that is too long.

    Raises:
        BudgetError: ``bytes``.
    """
    if size_bytes > budget.bytes_max:
        raise BudgetError("bytes", budget.bytes_max, size_bytes, where=where)


def check_values(value: Any, budget: Budget) -> None:
    """Refuse a value with too many levels or parts; takes any depth, stops where the budget is spent.

    Raises:
        BudgetError: ``levels`` or ``values``.

    Cost: O(parts), 0.1 microseconds for each.
    """
    layer = [value]
    count = 1
    for _ in range(budget.levels_max + 2):
        inner: list[Any] = []
        for part in layer:
            if isinstance(part, dict):
                inner += part.values()
            elif isinstance(part, list):
                inner += part
            if count + len(inner) > budget.values_max:
                raise BudgetError("values", budget.values_max, count + len(inner))
        count += len(inner)
        layer = [part for part in inner if isinstance(part, dict | list)]
        if not layer:
            return
    raise BudgetError("levels", budget.levels_max, budget.levels_max + 1)
