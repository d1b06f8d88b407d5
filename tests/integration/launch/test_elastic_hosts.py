"""A script that names hosts, and fails: what `gangline launch` says and does; its ranks need no torch."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RANK = Path(__file__).with_name("bare_rank.py")
LIMIT_S = 40.0


class Launch:
    """A launch whose hosts a script names."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.script, self.stop, self._log = folder / "hosts.sh", folder / "stop", folder / "log"
        named = ["--host-discovery-script", str(self.script), *words]
        rank = [sys.executable, str(RANK), str(self.stop)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gangline", "launch", "--min-ranks", "1", *named, "--", *rank],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}: {self.text()}"
            time.sleep(0.05)


def says(script: Path, line: str) -> None:
    draft = script.with_suffix(".draft")
    draft.write_text(f"#!/bin/sh\n{line}\n")
    draft.chmod(0o755)
    draft.replace(script)


def test_a_script_that_fails_at_its_first_call_ends_all_at_once(tmp_path: Path) -> None:
    launch = Launch(tmp_path)

    assert launch.process.wait(LIMIT_S) == 2
    assert (
        f"error[host-discovery]: host discovery script `{launch.script}` cannot be run: "
        "No such file or directory" in launch.text()
    )


def test_hosts_are_named_in_one_way(tmp_path: Path) -> None:
    launch = Launch(tmp_path, "--hosts", "localhost:2")

    assert launch.process.wait(LIMIT_S) == 2
    assert "--host-discovery-script names the hosts, and --hosts or --hostfile name others" in launch.text()


def test_ranks_stay_while_a_script_fails_and_hangs_and_others_come_after_it(tmp_path: Path) -> None:
    says(tmp_path / "hosts.sh", "echo localhost:1")
    launch = Launch(tmp_path)
    try:
        launch.wait_for(lambda: "rank 0 of 1 generation 1" in launch.text(), "one rank")
        says(launch.script, "echo try $$ >&2; exit 3")
        told = f"host discovery script `{launch.script}` exited with code 3: try "
        launch.wait_for(lambda: told in launch.text(), "the failure")
        assert "; the hosts stay (localhost:1), and it is asked again every second" in launch.text()
        says(launch.script, "echo localhost:2")
        launch.wait_for(lambda: "rank 1 of 2 generation 2" in launch.text(), "two ranks")
        assert f"host discovery script `{launch.script}` works again: localhost:2" in launch.text()
        assert launch.text().count(told) == 1

        says(launch.script, f"touch {tmp_path}/hangs; sleep 600")
        launch.wait_for((tmp_path / "hangs").exists, "a call that hangs")
        launch.stop.touch()
        began = time.monotonic()
        assert launch.process.wait(LIMIT_S) == 0
        assert time.monotonic() - began < 8.0  # sooner than the call ends
    finally:
        launch.process.kill()
        launch.process.wait()
