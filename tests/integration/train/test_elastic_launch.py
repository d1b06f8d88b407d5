"""An elastic launch: a killed rank of four, a host that comes, and the same losses as without all that."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from elastic_launch import LIMIT_S, Launch

from gangline.errors import EXIT_RESUME

pytestmark = pytest.mark.train

SCRIPT = Path(__file__).with_name("elastic_script.py")
RECOVERY_MAX_S = 10.0
LOSS = re.compile(r"loss of step (\d+): (\S+)")


def losses(text: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in LOSS.findall(text)}


@pytest.fixture
def alone(torch_python: str, ranks) -> dict[int, float]:
    """The losses of one rank that nothing happens to."""
    line = [torch_python, str(SCRIPT), "400", "0"]
    done = subprocess.run(line, env=ranks.environment(), capture_output=True, text=True, check=True)
    return losses(done.stdout)


@pytest.mark.parametrize(
    ("lost", "way"), [(2, "gloo"), (0, "memory")], ids=["rank 2 over gloo", "rank 0 over shared memory"]
)
def test_a_killed_rank_costs_seconds_and_a_new_host_joins_at_the_next_commit(
    torch_python: str, tmp_path: Path, ranks, alone: dict[int, float], lost: int, way: str
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:4\n")
    script = tmp_path / "discover"
    script.write_text(f"#!/bin/sh\ncat {hosts}\n")
    script.chmod(0o755)
    elastic = ("--min-ranks", "2", "--host-discovery-script", str(script), "--cool-down", "900")
    launch = Launch(
        tmp_path, ranks.environment(), *elastic, "--", torch_python, str(SCRIPT), "400", "0.08", way
    )
    try:
        launch.wait_for(lambda: 25 in losses(launch.text()), "step 25")
        pid = next(one[1] for one in launch.begins(4) if one[2] == lost)
        committed = max(losses(launch.text()))
        os.kill(pid, signal.SIGKILL)
        killed_at = time.monotonic()
        launch.wait_for(lambda: len(launch.begins(3)) == 3, "three ranks")
        assert time.monotonic() - killed_at < RECOVERY_MAX_S

        three = launch.begins(3)
        assert {one[4] for one in three} <= {committed, committed + 5}  # a commit may be under way
        assert len({one[4] for one in three}) == 1
        old = {one[0]: one[1] for one in launch.begins(4)}
        assert all(old[worker] == process for worker, process, *_ in three)  # the same processes

        hosts.write_text("localhost:3\n127.0.0.1:1\n")
        launch.wait_for(lambda: len(launch.begins(4)) == 8, "four ranks again")
        again = launch.begins(4)[4:]
        (new,) = [one for one in again if one[0] not in old]
        assert new[2] == 3  # the oldest worker is rank 0
        assert next(one for one in again if one[2] == 0)[0] in old
        assert launch.process.wait(LIMIT_S) == 0, launch.text()
    finally:
        launch.end()

    found = losses(launch.text())
    assert found.keys() == alone.keys()
    assert all(found[step] == pytest.approx(alone[step], rel=0.01) for step in alone)
    assert launch.text().count("done") == 4


def test_rank_that_dies_while_the_others_meet_it_costs_seconds(
    torch_python: str, tmp_path: Path, ranks
) -> None:
    elastic = ("--hosts", "localhost:4", "--min-ranks", "2", "--cool-down", "900", "--", torch_python)
    launch = Launch(tmp_path, ranks.environment(), *elastic, str(SCRIPT), "100000", "0.05", "dies")
    try:
        launch.wait_for(lambda: len(launch.begins(4)) == 4, "four ranks")
        old = {one[0]: one[1] for one in launch.begins(4)}
        os.kill(old[3], signal.SIGKILL)
        killed_at = time.monotonic()
        launch.wait_for(lambda: len(launch.begins(2)) == 2, "two ranks")

        assert time.monotonic() - killed_at < RECOVERY_MAX_S
        assert {one[0]: one[1] for one in launch.begins(2)} == {0: old[0], 2: old[2]}
        assert launch.begins(3) == []
    finally:
        launch.end()


def test_too_many_losses_end_all_and_name_the_last(torch_python: str, tmp_path: Path, ranks) -> None:
    elastic = ("--hosts", "localhost:2", "--min-ranks", "1", "--max-restarts", "0")
    launch = Launch(
        tmp_path, ranks.environment(), *elastic, "--", torch_python, str(SCRIPT), "100000", "0.05"
    )
    try:
        launch.wait_for(lambda: len(launch.begins(2)) == 2, "two ranks")
        os.kill(launch.begins(2)[1][1], signal.SIGKILL)

        assert launch.process.wait(LIMIT_S) == 128 + signal.SIGKILL
    finally:
        launch.end()
    assert "was killed by signal 9 (SIGKILL): failed; ranks were lost once, --max-restarts 0" in launch.text()


def test_ranks_that_save_when_asked_to_stop_end_with_75(torch_python: str, tmp_path: Path, ranks) -> None:
    elastic = ("--hosts", "localhost:2", "--min-ranks", "1", "--", torch_python)
    launch = Launch(tmp_path, ranks.environment(), *elastic, str(SCRIPT), "100000", "0.05", "asks")
    try:
        launch.wait_for(lambda: 10 in losses(launch.text()), "step 10")
        launch.process.terminate()

        assert launch.process.wait(LIMIT_S) == EXIT_RESUME, launch.text()
    finally:
        launch.end()
    assert "all ranks saved and ended" in launch.text()
