"""JSON of others as plain values, within a budget.

The C decoder counts its own recursion, so that depth cannot crash it; what is left to bound is what the text
may become. A count of brackets and commas, which takes microseconds, says when a closer look is needed.
"""

from __future__ import annotations

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
