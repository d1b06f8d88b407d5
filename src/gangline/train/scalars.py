"""Scalars of a training by any name: agreed between the ranks, written as records, given to trackers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gangline.errors import UserError
from gangline.train.records import RECORD_BYTES_MAX, format_record
from gangline.train.traffic import traffic

REDUCTIONS = ("mean", "sum", "min", "max")
NAME_CHARS_MAX = 128
KIND = "scalars"

Reducer = Callable[[list[float], str], list[float]]
"""Values of this rank and the reduction -> those of all ranks, the same on every rank."""


def check_scalars(values: Mapping[str, object], reduce: str | None) -> None:
    """Refuse what cannot be recorded.

    Raises:
        UserError: there is no value, a name is too long, or the reduction is none.
    """
    if not values:
        raise UserError("log() has no scalar", hint="progress.log(step, loss=loss, lr=0.1)")
    if reduce is not None and reduce not in REDUCTIONS:
        raise UserError(f"log(reduce={reduce!r}): must be {', '.join(REDUCTIONS)}, or None for rank 0's")
    for name in values:
        if not name or len(name) > NAME_CHARS_MAX:
            raise UserError(f"log(): a name has 1 to {NAME_CHARS_MAX} characters (found `{name}`)")


def scalar_records(step: int, values: Mapping[str, float]) -> list[str]:
    """Return the records of a step: several where one would be longer than a record may be.

    JSON has no NaN and no infinities: they are written as ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
    """
    lines: list[str] = []
    held: dict[str, float | str] = {}
    for name, value in values.items():
        one = {name: value if math.isfinite(value) else _word(value)}
        if held and len(format_record(KIND, step=step, values={**held, **one}).encode()) > RECORD_BYTES_MAX:
            lines.append(format_record(KIND, step=step, values=held))
            held = {}
        held |= one
    return [*lines, format_record(KIND, step=step, values=held)]


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def torch_reducer(size: int, device: Any) -> Reducer:
    """Return a reduction over the ranks of torch's default group, in float64.

    Cost: one all-reduce of 8 bytes a value; all ranks wait for one another.
    """

    def reduce(values: list[float], how: str) -> list[float]:
        import torch
        import torch.distributed as dist

        operation = {"min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}.get(how, dist.ReduceOp.SUM)
        tensor = torch.tensor(values, dtype=torch.float64, device=device)
        with traffic.waiting("progress.log()"):
            dist.all_reduce(tensor, operation)
        found = [float(value) for value in tensor.tolist()]
        return [value / size for value in found] if how == "mean" else found

    return reduce
