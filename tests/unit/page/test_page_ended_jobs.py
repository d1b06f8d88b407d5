"""Jobs that are over and still there are shown as runs, with what the ends of their logs say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from gangline.kube.errors import Forbidden
from gangline.page.ended_jobs import GONE, READ_MAX, EndedJobs
from gangline.page.rows import JobRow, job_key

Obj = dict[str, Any]


def pod(name: str) -> Obj:
    meta = {"name": f"{name}-a", "namespace": "team", "uid": f"pod of {name}"}
    return {"metadata": meta, "spec": {}, "status": {"phase": "Succeeded"}}


def job(name: str, condition: str) -> Obj:
    container = {"name": "a", "image": "i", "command": ["python", "train.py"], "env": [{"name": "KEY"}]}
    meta = {"name": name, "namespace": "team", "uid": f"uid of {name}"}
    meta["creationTimestamp"] = "2026-01-01T11:00:00Z"
    ended = {"type": condition, "status": "True", "lastTransitionTime": "2026-01-01T11:05:00Z"}
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": meta,
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"conditions": [ended], "completionTime": "2026-01-01T11:05:00Z"},
    }


class Cluster:
    """What a page knows of a cluster, and the logs that it may read there."""

    def __init__(self) -> None:
        self.jobs: list[JobRow] = []
        self.logs_of: dict[str, str] = {}
        self.asked: list[str] = []
        self._found: dict[str, tuple[Obj, list[Obj]]] = {}

    def add(
        self, name: str, state: str, *, created: str = "2026-01-01T11:00:00Z", has_pod: bool = True
    ) -> None:
        key = job_key("Job", "team", name)
        self.jobs.append(JobRow(key, "Job", "team", name, state, reason="of a kind", created=created))
        condition = {"SUCCEEDED": "Complete", "FAILED": "Failed"}.get(state, "Running")
        self._found[key] = job(name, condition), [pod(name)] if has_pod else []

    def find(self, key: str) -> tuple[Any, Obj] | None:
        return (None, self._found[key][0]) if key in self._found else None

    def pods_of(self, _resource: Any, found: Obj) -> list[Obj]:
        return self._found[job_key("Job", "team", found["metadata"]["name"])][1]

    async def logs(self, name: str, _namespace: str, **_more: Any) -> AsyncIterator[bytes]:
        self.asked.append(name)
        if name not in self.logs_of:
            raise Forbidden(403, "Forbidden", "no right to read logs")
        yield self.logs_of[name].encode()


def record(step: int, loss: float) -> str:
    return f"@gangline {json.dumps({'kind': 'progress', 'step': step, 'steps': 9, 'loss': loss})}\n"


def ended(cluster: Any) -> EndedJobs:
    return EndedJobs(cluster, cluster)


async def test_jobs_that_are_over_are_runs_and_others_are_not() -> None:
    cluster = Cluster()
    cluster.add("old", "SUCCEEDED", created="2026-01-01T10:00:00Z")
    cluster.add("new", "FAILED", created="2026-01-01T11:00:00Z")
    cluster.add("on", "RUNNING")
    cluster.logs_of["old-a"] = record(8, 0.5) + record(9, 0.25) + "done\n"

    rows = await ended(cluster).rows()

    assert [(row.name, row.status, row.last) for row in rows] == [
        ("new", "FAILED", ""),
        ("old", "SUCCEEDED", "9/9 loss 0.25"),
    ]
    assert (rows[1].key, rows[1].id, rows[1].command) == ("job/team/old", "uid of old", "python train.py")
    assert (rows[1].duration_s, rows[0].reason) == (300, "of a kind")


async def test_a_job_whose_pods_are_gone_says_that_its_log_is() -> None:
    cluster = Cluster()
    cluster.add("bare", "SUCCEEDED", has_pod=False)

    (row,) = await ended(cluster).rows()

    assert (row.last, row.lacks) == ("", GONE)
    assert await ended(cluster).series("uid of bare") == {}


async def test_a_log_that_has_ended_is_read_once_and_one_that_could_not_be_again() -> None:
    cluster = Cluster()
    cluster.add("mine", "SUCCEEDED")
    cluster.add("theirs", "SUCCEEDED")
    cluster.logs_of["mine-a"] = record(1, 1.0)
    runs = ended(cluster)
    await runs.rows()
    await runs.rows()

    assert sorted(cluster.asked) == ["mine-a", "theirs-a", "theirs-a"]


async def test_what_is_kept_elsewhere_is_left_out_and_only_the_newest_logs_are_read() -> None:
    cluster = Cluster()
    for number in range(READ_MAX + 10):
        cluster.add(f"j{number}", "SUCCEEDED", created=f"2026-01-01T10:{number:02}:00Z")

    rows = await ended(cluster).rows({f"uid of j{READ_MAX + 9}"})

    assert len(rows) == READ_MAX + 9
    assert rows[0].name == f"j{READ_MAX + 8}"
    assert len(cluster.asked) == READ_MAX


async def test_the_curves_are_those_of_the_log() -> None:
    cluster = Cluster()
    cluster.add("mine", "SUCCEEDED")
    cluster.logs_of["mine-a"] = record(1, 2.0) + "words\n" + record(2, 1.0)

    assert (await ended(cluster).series("uid of mine"))["loss"] == [2.0, 1.0]
    assert await ended(cluster).series("of nobody") == {}
