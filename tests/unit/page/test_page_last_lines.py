"""The last lines of a job's pods: of logs that are followed, and of others by their ends, beside it all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fake_client import FakeClient

from gangline.api.resources import JOBS, PODS
from gangline.kube.errors import Forbidden
from gangline.launch.rank_tags import ANNOTATION
from gangline.page import last_lines, scene
from gangline.page.last_lines import KEPT_MAX, PODS_MAX, LastLine, LastLines
from gangline.page.log_lines import Lines

Obj = dict[str, Any]


def pod(name: str, phase: str = "Running", **notes: str) -> Obj:
    meta = {"name": name, "namespace": "team", "uid": f"uid of {name}", "annotations": notes}
    return {"metadata": meta, "spec": {}, "status": {"phase": phase}}


class Cluster:
    """Logs by pod, and the feed of one that is followed."""

    def __init__(self, **logs: str) -> None:
        self.logs_of, self.asked = logs, list[str]()
        self.followed: dict[str, Any] = {}
        self.answers = asyncio.Event()
        self.changes = asyncio.Semaphore(0)
        self.lines = LastLines(self, self, self.changes.release)  # type: ignore[arg-type]

    def find(self, uid: str) -> Any:
        return self.followed.get(uid)

    async def logs(self, name: str, _namespace: str, **_more: Any) -> AsyncIterator[bytes]:
        self.asked.append(name)
        if name.startswith("slow"):
            await self.answers.wait()
        if name not in self.logs_of:
            raise Forbidden(403, "Forbidden", "no right")
        yield self.logs_of[name].encode()

    async def known(self, *pods: Obj, changes: int = 0) -> list[LastLine]:
        """Look, and look again when so many logs told something new."""
        self.lines.of(pods)
        async with asyncio.timeout(10):
            for _ in range(changes):
                await self.changes.acquire()
        await asyncio.sleep(0)  # a read that told of something ends
        return self.lines.of(pods)


async def test_each_pod_has_its_last_line_and_records_are_none() -> None:
    cluster = Cluster(a='one\ntwo\n\n@gangline {"kind": "progress", "step": 1}\n', b="three")

    found = await cluster.known(pod("a"), pod("b"), pod("secret"), pod("waits", "Pending"), changes=2)

    assert found == [LastLine("a", None, "two"), LastLine("b", None, "three")]
    assert sorted(cluster.asked) == ["a", "b", "secret"]


async def test_a_launchers_log_has_a_line_for_each_rank() -> None:
    cluster = Cluster(l="[0,1]<stdout>: x\n")
    lines = Lines(has_ranks=True)
    lines.feed(b"zero\n[2] two\n[1] one\n")
    cluster.followed["uid of l"] = type("Feed", (), {"lines": lines})

    found = cluster.lines.of([pod("l", **{ANNOTATION: "x"})])

    assert [(one.rank, one.text) for one in found] == [(0, "zero"), (1, "one"), (2, "two")]
    assert cluster.asked == []  # it is followed


async def test_a_pod_that_is_over_is_asked_once_and_so_many_pods_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_lines, "read_every_s", -1.0)
    cluster = Cluster(over="end", on="more")
    await cluster.known(pod("over", "Succeeded"), pod("on"), changes=2)
    await asyncio.sleep(0)
    assert cluster.asked == ["over", "on", "on"]
    await cluster.lines.stop()

    cluster.lines.of([pod(f"slow-{number}") for number in range(PODS_MAX + 9)])
    await asyncio.sleep(0)
    assert len(cluster.asked) == 3 + PODS_MAX
    await cluster.lines.stop()


async def test_a_log_that_answers_late_keeps_nobody_waiting_and_is_told_of_when_it_comes() -> None:
    cluster = Cluster(slow="late", b="here")

    assert await cluster.known(pod("slow"), pod("b"), changes=1) == [LastLine("b", None, "here")]

    cluster.answers.set()
    assert await cluster.known(pod("slow"), pod("b"), changes=1) == [
        LastLine("slow", None, "late"),
        LastLine("b", None, "here"),
    ]
    assert cluster.asked == ["slow", "b"]  # no second request beside the first


async def test_what_was_known_stays_while_a_log_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_lines, "read_every_s", -1.0)
    monkeypatch.setattr(last_lines, "read_timeout_s", 0.01)
    cluster = Cluster(slow="early")
    cluster.answers.set()
    await cluster.known(pod("slow"), changes=1)
    await cluster.lines.stop()
    cluster.answers.clear()

    for _ in range(3):  # and it is asked again once a request has run out
        found, before = cluster.lines.of([pod("slow")]), len(cluster.asked)
        assert found == [LastLine("slow", None, "early")]
        async with asyncio.timeout(10):
            while len(cluster.asked) == before:
                cluster.lines.of([pod("slow")])
                await asyncio.sleep(0.001)
    await cluster.lines.stop()


async def test_so_many_pods_are_remembered_at_most() -> None:
    names = [f"p{number}" for number in range(KEPT_MAX + 1)]
    cluster = Cluster(**dict.fromkeys(names, "line"))
    for name in names:
        await cluster.known(pod(name), changes=1)

    assert cluster.lines.of([pod(names[0], "Failed")]) == []
    assert cluster.lines.of([pod(names[-1])]) == [LastLine(names[-1], None, "line")]
    await cluster.lines.stop()


class SlowLogs(FakeClient):
    """A cluster where a node does not send logs until it is let."""

    def __init__(self) -> None:
        super().__init__("team")
        self.answers = asyncio.Event()

    async def logs(self, pod: str, namespace: str | None = None, **_more: Any) -> Any:
        await self.answers.wait()
        yield self.logged[pod]


async def test_a_jobs_page_is_there_before_a_slow_log_and_tells_its_line_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = SlowLogs()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "", "controller": True}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "team"}}
    owner["uid"] = (await client.create(JOBS, job | {"spec": {"template": {"spec": {}}}}))["metadata"]["uid"]
    labels = {"batch.kubernetes.io/job-name": "j", "job-name": "j"}
    made = pod("j-0")
    made["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
    await client.create(PODS, made)
    client.logged["j-0"] = b"step 7\n"

    async def explain(_name: str, _namespace: str) -> tuple[Obj, str, str]:
        return {}, "starts", ""

    shown = scene.Scene(
        client,
        title="",
        is_local=False,
        has_files=False,
        options="",
        kube_options="",
        explain=explain,
        runs=None,
        run_series=None,
    )
    running = asyncio.create_task(shown.run())
    async with asyncio.timeout(10):
        await shown.live.wait_synced()
        with shown.listening() as changed:
            value = await shown.detail("job/team/j")
            assert (value["explain"], value["lines"]) == ("starts", [])

            client.answers.set()
            while not (value := await shown.detail("job/team/j"))["lines"]:
                changed.clear()
                await changed.wait()
    assert value["lines"] == [LastLine("j-0", None, "step 7")]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
