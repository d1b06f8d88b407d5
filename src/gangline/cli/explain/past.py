"""What ``gangline explain`` says of a run that is over and of which only the record is left."""

from __future__ import annotations

from gangline.cli.output import print_value
from gangline.client.jobs.job_lookup import find_past
from gangline.client.jobs.past_failure import why_failed
from gangline.client.target import ClusterTarget
from gangline.clock import now
from gangline.cluster.runs.record import summary_of


async def explain_past(target: ClusterTarget, name: str, output: str | None) -> bool:
    """Print how the newest run of that name or id ended; False where none is kept."""
    namespace = target.namespace or ("default" if target.is_local else target.connection().namespace)
    found = find_past(target, name, namespace)
    if found is None or found.past is None:
        return False
    record = found.past.record
    run = summary_of(record, now(), is_up=False)
    why = str(await why_failed(found.past, record.job, record.pods) or run.cancelled_why)
    title = f"{run.kind.lower()} {run.namespace}/{run.name}"
    if output:
        times = {"id": run.id, "began": run.began, "ended": run.ended}
        print_value({"job": title, "state": run.status.lower(), "message": why, **times}, output)
        return True
    print(f"{title} {_VERBS.get(run.status, run.status.lower())}" + (f": {why}" if why else ""))
    ended = f", ended {run.ended}" if run.ended else ""
    print(f"it began {run.began}{ended}; `gangline logs {name}{target.options}` shows its log")
    return True


_VERBS = {"CANCELLED": "was cancelled", "LOST": "was lost", "PENDING": "never started"}
