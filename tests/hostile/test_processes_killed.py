"""kill -9 of whatever a cluster consists of while short jobs run: every program runs once, every end is told.

Server, node agent, the process that forks shims, shims, and the ``gangline run`` itself, at random moments.
``GANGLINE_HOSTILE_ROUNDS`` (50; a fifth of it here) and ``GANGLINE_HOSTILE_SEED`` (1) choose the series.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_rounds import ALL_VICTIMS, Rounds

ROUNDS = max(int(os.environ.get("GANGLINE_HOSTILE_ROUNDS", "50")) // 5, 2)
SEED = int(os.environ.get("GANGLINE_HOSTILE_SEED", "1"))

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(6 * 3600)]


@pytest.fixture
def home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gangline-kills-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_no_end_is_lost_and_no_program_runs_twice_whatever_is_killed(home: Path) -> None:
    rounds = Rounds(home, seed=SEED, victims=ALL_VICTIMS)
    try:
        tally = rounds.run(ROUNDS)
    finally:
        rounds.end()
    print(f"processes killed, seed {SEED}: {tally}; 0 processes, links, mounts and folders left")
    assert not tally.faults, "\n".join([str(tally), *tally.faults])
