"""A run that is kept, as values."""

from __future__ import annotations

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
