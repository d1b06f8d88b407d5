"""How a run ended of which only the record is left, as plain values."""

from __future__ import annotations

from typing import Any

from gangline.client.jobs.job_lookup import find_past
from gangline.client.jobs.past_failure import why_failed
from gangline.client.target import ClusterTarget
from gangline.clock import now
from gangline.cluster.runs.record import summary_of


async def explain_past(target: ClusterTarget, name: str) -> dict[str, Any] | None:
    """Return how the newest run of that name or id ended; None where none is kept."""
    namespace = target.namespace or ("default" if target.is_local else target.connection().namespace)
    found = find_past(target, name, namespace)
    if found is None or found.past is None:
        return None
    record = found.past.record
    run = summary_of(record, now(), is_up=False)
    why = str(await why_failed(found.past, record.job, record.pods) or run.cancelled_why)
    title = f"{run.kind.lower()} {run.namespace}/{run.name}"
    times = {"id": run.id, "began": run.began, "ended": run.ended}
    return {"job": title, "state": run.status.lower(), "message": why, **times}
