"""A cluster that nobody uses ends itself, and never under a command or a pod."""

import asyncio
import os
import signal
from types import SimpleNamespace

import pytest
from fake_client import FakeClient

from gangline.cli.serve import idle_end
from gangline.client import target as target_module
from gangline.client.target import ClusterTarget, open_client
from gangline.cluster.daemon.cluster_facts import decide_facts, last_used, note_use, save_facts
from gangline.cluster.daemon.folders import make_private_folders
from gangline.cluster.paths import ClusterPaths
from gangline.kube.errors import TooManyRequests


@pytest.fixture
def paths(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    found = ClusterPaths.of("default")
    make_private_folders(found)
    save_facts(found, decide_facts(found, None, nodes=1, isolation="auto", keep=False))
    note_use(found)
    return found


class Pods(FakeClient):
    """Answers each look with the number of unfinished pods, or an error."""

    def __init__(self, *looks):
        super().__init__()
        self.looks = list(looks)

    async def any(self, resource, namespace=None, *, field_selector=""):
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look > 0


@pytest.fixture
def looks(paths, monkeypatch):
    """Look with these answers, a minute apart; returns how many looks it took to end."""
    clock = SimpleNamespace(now=last_used(paths))
    ended = []

    async def sleep(seconds):
        clock.now += 60.0

    monkeypatch.setattr(idle_end, "time", SimpleNamespace(time=lambda: clock.now))
    monkeypatch.setattr(idle_end, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)))

    def look(*answers):
        pods = Pods(*answers)
        asyncio.run(idle_end.end_when_idle(pods, paths))
        assert ended == [(os.getpid(), signal.SIGTERM)]
        return len(answers) - len(pods.looks)

    return look


def test_it_ends_ten_minutes_after_the_last_command(looks):
    assert looks(*[0] * 20) == 10


def test_the_ten_minutes_begin_when_the_last_pod_has_finished(looks):
    assert looks(*[1] * 30, *[0] * 20) == 40


def test_a_look_that_fails_ends_nothing(looks):
    assert looks(*[0] * 5, TooManyRequests(429, "TooManyRequests", "later"), *[0] * 20) == 16


def test_a_command_that_waits_uses_the_cluster_all_the_time(paths, monkeypatch):
    monkeypatch.setattr(target_module, "USE_NOTED_EVERY_S", 0.001)

    async def wait():
        async with open_client(ClusterTarget(), bring_back=lambda: None):
            for _ in range(3):
                os.utime(paths.state / "last-used", (1.0, 1.0))
                async with asyncio.timeout(10):
                    while last_used(paths) == 1.0:
                        await asyncio.sleep(0.001)

    asyncio.run(wait())
