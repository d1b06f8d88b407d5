"""Checkpoints of an elastic training: ranks that are lost and come, and a start after all were killed."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from elastic_launch import Launch

pytestmark = pytest.mark.train

SCRIPT = Path(__file__).with_name("elastic_saves_script.py")
# rank 0 knows that 12 is saved
SAVED = re.compile(r"rank \d+ knows that (\d+) is saved")
# worker 0 pid 4711 is rank 0 of 2 at step 12, 9 on disk
ON_DISK = re.compile(r"is rank \d+ of (\d+) at step (\d+), (\d+) on disk")


def saved(launch: Launch) -> int:
    """Return the newest step of which a rank knows that it is on disk."""
    return max(map(int, SAVED.findall(launch.text())), default=0)


@pytest.mark.parametrize("way", ["waits", "behind"])
def test_saves_go_on_with_new_ranks_and_after_all_were_killed(
    torch_python: str, tmp_path: Path, ranks, way: str
) -> None:
    hosts, script, folder = tmp_path / "hosts", tmp_path / "discover", tmp_path / "checkpoints"
    hosts.write_text("localhost:2\n")
    script.write_text(f"#!/bin/sh\ncat {hosts}\n")
    script.chmod(0o755)
    elastic = ("--min-ranks", "1", "--host-discovery-script", str(script), "--cool-down", "900")
    line = ("--", torch_python, str(SCRIPT), str(folder), "100000", "0.03", way)
    launch = Launch(tmp_path, ranks.environment(), *elastic, *line)
    try:
        launch.wait_for(lambda: saved(launch) >= 12, "step 12 on disk")
        before = saved(launch)
        os.kill(next(one[1] for one in launch.begins(2) if one[2] == 1), signal.SIGKILL)
        launch.wait_for(lambda: launch.begins(1), "one rank")
        launch.wait_for(lambda: saved(launch) >= before + 12, "saves of one rank")

        hosts.write_text("localhost:1\n127.0.0.1:1\n")
        launch.wait_for(lambda: len(launch.begins(2)) == 4, "two ranks again")
        before = saved(launch)
        launch.wait_for(lambda: saved(launch) >= before + 12, "saves of two ranks again")
    finally:
        launch.end()
        for one in {*launch.begins(1), *launch.begins(2)}:
            with suppress(ProcessLookupError):
                os.kill(one[1], signal.SIGKILL)
    found = [tuple(map(int, one)) for one in ON_DISK.findall(launch.text())]
    assert len(set(found[-2:])) == 1  # both saw the same step on disk
    known = saved(launch)

    again = Launch(tmp_path, ranks.environment(), *elastic, *line)
    try:
        again.wait_for(lambda: len(again.begins(2)) == 2, "two ranks after all were killed")
        began = {one[4] for one in again.begins(2)}
        again.wait_for(lambda: saved(again) >= max(began) + 6, "saves after all were killed")
    finally:
        again.end()
    (step,) = began
    assert known <= step <= known + 6  # the one that was on its way may be complete
    assert (
        len({path.stem.rpartition(".")[2] for path in folder.glob(".step-*.part")}) <= 1
    )  # of that run alone
