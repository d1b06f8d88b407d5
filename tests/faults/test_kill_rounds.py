"""Server and node agent are killed at random moments: every program runs exactly once, every end is right."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_rounds import Rounds

ROUNDS = int(os.environ.get("GANGLINE_KILL_ROUNDS", "3"))
SEED = int(os.environ.get("GANGLINE_KILL_SEED", "24"))


@pytest.fixture
def home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gangline-kills-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_no_end_is_lost_and_no_program_runs_twice_when_daemons_are_killed(home: Path) -> None:
    rounds = Rounds(home, seed=SEED)
    try:
        tally = rounds.run(ROUNDS)
    finally:
        rounds.end()
    print(tally, file=sys.stderr)
    assert not tally.faults, "\n".join([str(tally), *tally.faults])
