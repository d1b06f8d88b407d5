"""A run that is kept, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class RunReport(msgspec.Struct, frozen=True, rename="camel"):
    """One execution of a function, program or manifest, which its name, log and result outlive.

    Attributes:
        name, namespace, kind: of its job. id: the job's own, which `job` takes too.
        command: in one line.
        status: `RUNNING`, `PENDING`, `SUCCEEDED`, `FAILED`, `CANCELLED` or `LOST`.
        exit_code: of its last primary pod; None where none ended.
        failed_rank: which rank failed first; None where nobody knows.
        reason: why it failed or has no result; empty for one that succeeded.
        began, ended: RFC 3339; None while it goes on.
        duration_seconds: until its end, or now.
        metrics: what its training reported last.
    """

    name: str
    id: str
    namespace: str
    kind: str
    command: str
    status: str
    exit_code: int | None
    failed_rank: int | None
    reason: str
    began: str
    ended: str | None
    duration_seconds: float
    metrics: dict[str, object]


def report_of(values: dict[str, Any]) -> RunReport:
    """Return a report of its plain values, as `gangline runs -o json` has them."""
    return msgspec.convert(values, RunReport)


def metrics_in_words(metrics: Mapping[str, object]) -> str:
    """Return ``240/1000 loss 0.231 123 images/s``; empty where nothing was reported."""
    loss, rate, words = metrics.get("loss"), metrics.get("rate"), []
    if "step" in metrics:
        steps = metrics.get("steps")
        words.append(f"{metrics['step']}/{steps}" if steps else str(metrics["step"]))
    if isinstance(loss, int | float):
        words.append(f"loss {loss:.4g}")
    if isinstance(rate, int | float):
        words.append(f"{rate:,.1f} {metrics.get('unit') or 'items'}/s")
    return " ".join(words)
