"""Jobs of a cluster that are over and still there, as runs: what is left where nobody keeps the past."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from gangline.client.run_report import metrics_in_words
from gangline.clock import now
from gangline.cluster.runs.record import RunRecord, summary_of, without_environment
from gangline.errors import GanglineError
from gangline.page.log_reading import last_progress, read_curves, read_together
from gangline.page.rows import RUNS_MAX, RunRow
from gangline.workloads.job_state import primary_pods

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient
    from gangline.page.live import LiveCluster
    from gangline.page.rows import JobRow
    from gangline.page.series import Columns

Obj = dict[str, Any]

ENDED: Final = ("SUCCEEDED", "FAILED")
READ_MAX: Final = 40
"""Of how many, the newest ones, the end of the log is read: each costs a request."""
read_timeout_s: Final = 2.0
"""For all of them together: a list is worth more than its last column."""
TAIL_LINES: Final = 200
KEPT_MAX: Final = 1_024
"""Logs of which the last words are remembered."""
GONE: Final = "its pods are gone, or not yours to see, and so are their logs"
UNREAD: Final = "the end of its log was not read: it is old, slow, or not yours to read"


class EndedJobs:
    """What jobs came to that are over, as long as the cluster has them and the logs of their pods.

    Args:
        client: asks with the user's own rights.
        live: the jobs.
    """

    def __init__(self, client: ObjectClient, live: LiveCluster) -> None:
        self._client, self._live = client, live
        self._last: dict[str, str] = {}
        """Last words by the pod's uid: a log that has ended stays as it is."""

    async def rows(self, known: Collection[str] = ()) -> list[RunRow]:
        """Return them, the newest first.

        Args:
            known: uids of jobs that are shown already.
        """
        ended = [row for row in self._live.jobs if row.state in ENDED]
        ended.sort(key=lambda row: row.created, reverse=True)
        jobs = [(row, job, pods) for row, job, pods in map(self._objects, ended[:RUNS_MAX]) if job]
        jobs = [one for one in jobs if one[1]["metadata"]["uid"] not in known]
        await self._read([chief for _, job, pods in jobs if (chief := _chief(job, pods))])
        return [self._row(*one) for one in jobs]

    async def series(self, uid: str) -> Columns:
        """Return the curves of one of them; empty where its log is gone."""
        for row in self._live.jobs:
            _, job, pods = self._objects(row)
            if job and job["metadata"]["uid"] == uid and (chief := _chief(job, pods)):
                meta = chief["metadata"]
                return await read_curves(self._client.logs(meta["name"], meta["namespace"]), chief)
        return {}

    def _objects(self, row: JobRow) -> tuple[JobRow, Obj, list[Obj]]:
        found = self._live.find(row.key)
        return (row, found[1], self._live.pods_of(*found)) if found else (row, {}, [])

    async def _read(self, chiefs: list[Obj]) -> None:
        """Read the ends of logs that were not read yet."""
        left = [pod for pod in chiefs[:READ_MAX] if pod["metadata"]["uid"] not in self._last]
        if len(self._last) >= KEPT_MAX:
            self._last.clear()
        await read_together(map(self._read_one, left), read_timeout_s)

    async def _read_one(self, pod: Obj) -> None:
        try:
            found = await last_progress(self._client, pod, TAIL_LINES)
        except GanglineError:  # asked again when somebody looks the next time
            return
        self._last[pod["metadata"]["uid"]] = metrics_in_words(found or {})

    def _row(self, row: JobRow, job: Obj, pods: list[Obj]) -> RunRow:
        run = summary_of(RunRecord(job=without_environment(job), pods=pods), now())
        chief = _chief(job, pods)
        uid = chief["metadata"]["uid"] if chief else ""
        return RunRow(
            id=run.id,
            key=row.key,
            name=run.name,
            namespace=run.namespace,
            status=run.status,
            command=run.command,
            started=run.began,
            duration_s=run.duration_s,
            last=self._last.get(uid, ""),
            reason=row.reason,
            lacks="" if uid in self._last else UNREAD if uid else GONE,
        )


def _chief(job: Obj, pods: list[Obj]) -> Obj | None:
    """Return the pod whose log is the job's; None where it is gone."""
    return next(iter(primary_pods(job, pods)[-1:]), None)
