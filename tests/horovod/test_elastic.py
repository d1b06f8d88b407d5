"""``@hvd.elastic.run`` under an elastic launcher: a killed rank of four, and a host that comes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launch_ranks import environment

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(300)]

SCRIPT = str(Path(__file__).with_name("elastic_script.py"))
STEPS, COMMIT_EVERY = 300, 5
RECOVERY_MAX_S = 10.0
LIMIT_S = 120.0


def python() -> str:
    found = os.environ.get("GANGLINE_TRAIN_PYTHON")
    if not found:
        pytest.skip("GANGLINE_TRAIN_PYTHON is not set: run `make test-horovod`")
    return found


def lines_of(text: str) -> list[dict[str, Any]]:
    # [1]: {"event": "step", "step": 3, "loss": 0.5}
    return [json.loads(found) for found in re.findall(r'\{"event": .*\}', text)]


@pytest.fixture(scope="module")
def alone() -> dict[int, float]:
    """The losses of one rank that nothing happens to."""
    done = subprocess.run(
        [python(), SCRIPT, str(STEPS), "0"],
        env=environment(os.environ.get("GANGLINE_HOROVOD_OVERLAY", "")),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return {line["step"]: line["loss"] for line in lines_of(done.stdout) if line["event"] == "step"}


class Launch:
    """A launcher under way, with hosts that a file names."""

    def __init__(self, folder: Path, words: Callable[[Path], list[str]], *more: str) -> None:
        self.hosts, self._log, script = folder / "hosts", folder / "log", folder / "discover"
        self.hosts.write_text("localhost:4\n")
        script.write_text(f"#!/bin/sh\ncat {self.hosts}\n")
        script.chmod(0o755)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words(script), python(), SCRIPT, str(STEPS), "0.06", *more],
                env=environment(os.environ.get("GANGLINE_HOROVOD_OVERLAY", "")),
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def said(self, event: str, **wanted: Any) -> list[dict[str, Any]]:
        return [line for line in lines_of(self.text()) if line.items() >= ({"event": event} | wanted).items()]

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}: {self.text()}"
            assert self.process.poll() is None, self.text()
            time.sleep(0.05)


LAUNCHERS: dict[str, Callable[[Path], list[str]]] = {
    "gangline launch": lambda script: [
        *("gangline", "launch", "--min-ranks", "2", "--max-ranks", "4", "--cool-down", "900"),
        *("--host-discovery-script", str(script), "--"),
    ],
    "horovodrun": lambda script: [
        *("gangline.launch.horovodrun", "-np", "4", "--min-np", "2", "--max-np", "4"),
        *("--host-discovery-script", str(script)),
    ],
}


@pytest.fixture(params=[("gangline launch", 0), ("gangline launch", 2), ("horovodrun", 3)], ids=str)
def lost(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Launch, int]]:
    launcher, rank = request.param
    launch = Launch(tmp_path, LAUNCHERS[launcher])
    try:
        yield launch, rank
    finally:
        launch.process.terminate()
        launch.process.wait(LIMIT_S)


def test_it_goes_on_without_a_killed_rank_and_takes_a_new_host(
    lost: tuple[Launch, int], alone: dict[int, float]
) -> None:
    launch, rank = lost
    launch.wait_for(lambda: launch.said("step", step=23), "step 23")
    committed = launch.said("step")[-1]["step"] // COMMIT_EVERY * COMMIT_EVERY
    old = launch.said("begins", size=4)
    os.kill(next(one["pid"] for one in old if one["rank"] == rank), signal.SIGKILL)
    killed_at = time.monotonic()
    launch.wait_for(lambda: len(launch.said("begins", size=3)) == 3, "three ranks")

    assert time.monotonic() - killed_at < RECOVERY_MAX_S
    three = launch.said("begins", size=3)
    assert {one["pid"] for one in three} < {one["pid"] for one in old}  # the same processes
    assert len({one["step"] for one in three}) == 1
    assert three[0]["step"] in (committed, committed + COMMIT_EVERY)  # one may have been under way

    launch.hosts.write_text("localhost:3\n127.0.0.1:1\n")
    launch.wait_for(lambda: len(launch.said("begins", size=4)) == 8, "four ranks again")
    again = launch.said("begins", size=4)[4:]
    (new,) = [one for one in again if one["pid"] not in {other["pid"] for other in old}]
    assert new["rank"] == 3  # rank 0 is an old one
    assert launch.process.wait(LIMIT_S) == 0, launch.text()

    ends = launch.said("ends", size=4)
    assert [one["weights"] for one in ends] == [ends[0]["weights"]] * 4
    losses = {line["step"]: line["loss"] for line in launch.said("step")}
    assert losses == pytest.approx(alone, rel=0.01)


@pytest.mark.parametrize("phase", ["store", "link"])
def test_a_rank_that_dies_while_the_others_meet_it_costs_seconds(tmp_path: Path, phase: str) -> None:
    launch = Launch(tmp_path, LAUNCHERS["gangline launch"], f"{phase}:0:2:SIGKILL")
    try:
        launch.wait_for(lambda: launch.said("step", step=7), "step 7")
        old = launch.said("begins", size=4)
        os.kill(next(one["pid"] for one in old if one["rank"] == 3), signal.SIGKILL)
        launch.wait_for(lambda: launch.said("lost"), "the second loss")
        lost_at = time.monotonic()
        launch.wait_for(lambda: len(launch.said("begins", size=2)) == 2, "two ranks")

        assert time.monotonic() - lost_at < RECOVERY_MAX_S
        assert {one["pid"] for one in launch.said("begins", size=2)} < {one["pid"] for one in old}
        assert launch.said("begins", size=3) == []
    finally:
        launch.process.terminate()
        launch.process.wait(LIMIT_S)
