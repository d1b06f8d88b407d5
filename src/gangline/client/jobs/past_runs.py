"""What ran: the records that are kept of runs, each with its result and what a training reported last."""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace

from gangline.client.jobs.job_lookup import pods_of
from gangline.client.jobs.past_failure import why_failed
from gangline.client.notices import Say, silent
from gangline.client.target import ClusterTarget, open_client
from gangline.clock import format_time, now
from gangline.cluster.runs.history import DamagedRunError, History
from gangline.cluster.runs.reading import PastRun
from gangline.cluster.runs.record import RunRecord, summary_of, without_environment
from gangline.errors import ClusterError
from gangline.kube.errors import NotFound
from gangline.workloads.job_state import primary_pods
from gangline.workloads.kinds import kind_of


async def read_runs(
    target: ClusterTarget,
    pattern: str | None,
    *,
    only_failed: bool,
    limit: int,
    say: Say = silent,
) -> list[dict[str, Any]]:
    """Return the newest runs, the newest first, as plain values.

    Args:
        target: the cluster, which need not be up.
        pattern: of names, such as `train*`; None for all.
        only_failed: those that failed, were cancelled or lost.
        limit: how many at most.
        say: is told of records that are damaged, and of runs that are shown as last seen.
    """
    history = History(target.kept)
    is_up = target.is_up()
    if not target.is_local:
        await _look_again(target, history, say)
    reports: list[dict[str, Any]] = []
    for file in history.files():
        if len(reports) == limit:
            break
        if pattern and not fnmatchcase(file.name, pattern):
            continue
        try:
            record = history.read(file)
        except FileNotFoundError:  # removed by another command
            continue
        except DamagedRunError as error:
            say(f"left out: {error.message}; {error.hint}")
            continue
        report = await _report(target, record, is_up=is_up)
        if not only_failed or report["status"] in ("FAILED", "CANCELLED", "LOST"):
            reports.append(report)
    return reports


async def _look_again(target: ClusterTarget, history: History, say: Say) -> None:
    """Bring the records up to date of runs that went on when nobody followed them any more."""
    left = []
    for file in history.files():
        with suppress(FileNotFoundError, DamagedRunError):
            left += [record] if not (record := history.read(file)).is_over else []
    if not left:
        return
    try:
        async with open_client(target) as client:
            for record in left:
                metadata = record.job["metadata"]
                found: dict[str, Any] = {}
                with suppress(NotFound):
                    resource = kind_of(record.job).resource
                    found = await client.get(resource, metadata["name"], metadata["namespace"])
                    found.setdefault("kind", record.job["kind"])
                if found.get("metadata", {}).get("uid") == record.uid:
                    pods = [without_environment(pod) for pod in await pods_of(client, found)]
                    history.write(RunRecord(job=without_environment(found), pods=pods or record.pods))
                else:
                    history.write(replace(record, gone_at=format_time(now()), is_lost=True))
    except ClusterError as error:
        say(f"shown as last seen: {error.message}")


async def _report(target: ClusterTarget, record: RunRecord, *, is_up: bool) -> dict[str, Any]:
    run, past = summary_of(record, now(), is_up=is_up), PastRun(target.kept, record)
    primaries = primary_pods(record.job, record.pods)
    metrics = past.last_metrics(primaries[-1]) if primaries else {}
    cause = await why_failed(past, record.job, record.pods)
    return {
        "name": run.name,
        "id": run.id,
        "namespace": run.namespace,
        "kind": run.kind,
        "command": run.command,
        "status": run.status,
        "exitCode": run.exit_code,
        "failedRank": cause.rank if cause else None,
        "reason": str(cause or run.cancelled_why),
        "began": run.began,
        "ended": run.ended or None,
        "durationSeconds": run.duration_s,
        "metrics": {key: value for key, value in metrics.items() if key not in ("kind", "eta_s")},
    }
