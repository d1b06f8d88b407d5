"""JSON of others as plain values, within a budget.

The C decoder counts its own recursion, so that depth cannot crash it; what is left to bound is what the text
may become. A count of brackets and commas, which takes microseconds, says when a closer look is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from gangline.api.budgets import Budget, BudgetError, check_size, check_values
from gangline.errors import ManifestError

_decode = msgspec.json.Decoder().decode


def read_json(raw: bytes, budget: Budget, *, where: str = "") -> Any:
    """Return the value that a JSON text holds.

    Raises:
        BudgetError: it is over a budget.
        ManifestError: it is no JSON.

    Cost: that of msgspec, and 1 ns a byte.
    """
    check_size(len(raw), budget, where=where)
    containers = raw.count(b"{") + raw.count(b"[")
    try:
        value = _decode(raw)
    except RecursionError:
        raise BudgetError("levels", budget.levels_max, containers, where=where) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ManifestError(str(error), where=where) from None
    if containers > budget.levels_max or containers + raw.count(b",") > budget.values_max:
        check_values(value, budget)
    return value


def duplicate_fields(raw: bytes) -> list[str]:
    """Return the paths of keys that stand twice in one object of a JSON text that ``read_json`` has read.

    Cost: 20 microseconds for a pod.
    """
    doubled: dict[int, tuple[dict[str, Any], list[str]]] = {}

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        obj = dict(pairs)
        if len(obj) < len(pairs):
            keys = [key for key, _ in pairs]
            doubled[id(obj)] = (obj, [key for key in obj if keys.count(key) > 1])
        return obj

    value = json.loads(raw, object_pairs_hook=read)

    def paths(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict):
            begin = f"{path}." if path else ""
            yield from (f"{begin}{key}" for key in doubled.get(id(value), (value, []))[1])
            for key, item in value.items():
                yield from paths(item, f"{begin}{key}")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from paths(item, f"{path}[{index}]")

    return list(paths(value, "")) if doubled else []
