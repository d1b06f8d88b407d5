"""A host whose network is gone while the others wait for its rank in a save."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_launch import Launch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plain_hosts import PlainHosts, call, why_not

pytestmark = [pytest.mark.train, pytest.mark.root]

SCRIPT = Path(__file__).with_name("elastic_saves_script.py")
FREED_MAX_S = 5.0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[PlainHosts]:
    if reason := why_not():
        pytest.skip(reason)
    made = PlainHosts(tmp_path, 2)
    try:
        made.start()
        yield made
    finally:
        for name in made.names:
            made.end_sessions(name)
        made.close()


@pytest.mark.parametrize("way", ["waits", "behind"])
@pytest.mark.parametrize("order", ["h1:1,h2:1", "h2:1,h1:1"], ids=["rank 1", "rank 0, with the store"])
def test_who_waits_in_a_save_for_a_lost_host_goes_on_within_seconds(
    torch_python: str, tmp_path: Path, ranks, hosts: PlainHosts, order: str, way: str
) -> None:
    lost = order.split(",").index("h2:1")
    environment = ranks.environment() | {"GANGLINE_SHARED_MEMORY": "0"}
    elastic = ("-H", order, "--min-ranks", "1", "--cool-down", "900", "--", torch_python, str(SCRIPT))
    words = (str(tmp_path / "checkpoints"), "40", "0.02", way, f"worker-{lost}-hangs")
    launch = Launch(tmp_path, environment, *elastic, *words, before=tuple(hosts.command("h1")))
    try:
        launch.wait_for(lambda: f"worker {lost} hangs" in launch.text(), "a rank that hangs")
        call(*hosts.command("h2", "ip", "link", "set", "eth0", "down"))
        for pid, line in hosts.sessions("h1").items():
            if line.startswith("ssh ") and " h2 " in line:  # it would find out by itself in 30 s
                os.kill(pid, signal.SIGKILL)
        lost_at = time.monotonic()
        launch.wait_for(lambda: "leaves its generation" in launch.text(), "an error")
        assert time.monotonic() - lost_at < FREED_MAX_S
        launch.wait_for(lambda: launch.begins(1), "one rank")
        assert launch.process.wait(60) == 0, launch.text()
    finally:
        launch.end()
