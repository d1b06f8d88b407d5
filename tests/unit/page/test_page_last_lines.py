"""The last lines of a job's pods: of logs that are followed, and of others by their ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gangline.kube.errors import Forbidden
from gangline.launch.rank_tags import ANNOTATION
from gangline.page import last_lines
from gangline.page.last_lines import PODS_MAX, LastLine, LastLines
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

    def find(self, uid: str) -> Any:
        return self.followed.get(uid)

    async def logs(self, name: str, _namespace: str, **_more: Any) -> AsyncIterator[bytes]:
        self.asked.append(name)
        if self.logs_of.get(name) == "slow":
            await asyncio.Event().wait()
        if name not in self.logs_of:
            raise Forbidden(403, "Forbidden", "no right")
        yield self.logs_of[name].encode()


def reader(cluster: Any) -> LastLines:
    return LastLines(cluster, cluster)


async def test_each_pod_has_its_last_line_and_records_are_none() -> None:
    cluster = Cluster(a='one\ntwo\n\n@gangline {"kind": "progress", "step": 1}\n', b="three")

    found = await reader(cluster).read([pod("a"), pod("b"), pod("secret"), pod("waits", "Pending")])

    assert found == [LastLine("a", None, "two"), LastLine("b", None, "three")]
    assert sorted(cluster.asked) == ["a", "b", "secret"]


async def test_a_launchers_log_has_a_line_for_each_rank() -> None:
    cluster = Cluster(l="[0,1]<stdout>: x\n")
    lines = Lines(has_ranks=True)
    lines.feed(b"zero\n[2] two\n[1] one\n")
    cluster.followed["uid of l"] = type("Feed", (), {"lines": lines})

    found = await reader(cluster).read([pod("l", **{ANNOTATION: "x"})])

    assert [(one.rank, one.text) for one in found] == [(0, "zero"), (1, "one"), (2, "two")]
    assert cluster.asked == []  # it is followed


async def test_a_pod_that_is_over_is_asked_once_and_so_many_pods_at_most() -> None:
    cluster = Cluster(over="end")
    lines = reader(cluster)
    await lines.read([pod("over", "Succeeded")])
    await lines.read([pod("over", "Succeeded")])
    assert cluster.asked == ["over"]

    await lines.read([pod(f"p{number}") for number in range(PODS_MAX + 9)])
    assert len(cluster.asked) == 1 + PODS_MAX


async def test_a_log_that_does_not_come_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_lines, "read_timeout_s", 0.05)

    assert await reader(Cluster(a="slow", b="here")).read([pod("a"), pod("b")]) == [
        LastLine("b", None, "here")
    ]
