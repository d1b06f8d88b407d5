"""Callbacks of others' trainers: progress and checkpoints are told, and a stopped training goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gangline.errors import EXIT_RESUME
from gangline.train.records import parse_record

pytestmark = pytest.mark.train

HERE = Path(__file__).parent
TRAINERS = ["hugging_face_script.py", "lightning_script.py"]


def records(log: str, kind: str) -> list[dict[str, object]]:
    found = [record for line in log.splitlines() if (record := parse_record(line))]
    return [record for record in found if record["kind"] == kind]


def start(ranks, python: str, script: str, steps: int) -> None:
    ranks.processes.clear()
    ranks.start(python, HERE / script, 2, str(steps), LOCAL_WORLD_SIZE="2", HF_HUB_OFFLINE="1")


@pytest.mark.parametrize("script", TRAINERS)
def test_a_trainer_tells_progress_and_checkpoints_and_goes_on_where_it_was_stopped(
    ranks, torch_python, script
) -> None:
    start(ranks, torch_python, script, 500)
    ranks.wait_for(lambda: len(records(ranks.log(0), "progress")) > 2, "progress")
    os.kill(ranks.processes[1].pid, signal.SIGTERM)

    assert ranks.wait() == [EXIT_RESUME, EXIT_RESUME], ranks.log(0) + ranks.log(1)
    progress, saved = records(ranks.log(0), "progress"), records(ranks.log(0), "checkpoint")
    assert (progress[0]["step"], progress[0]["steps"], progress[0]["ranks"]) == (1, 500, 2)
    assert not records(ranks.log(1), "progress")
    stopped_at = int(str(saved[-1]["step"]))
    assert 1 < stopped_at < 500

    start(ranks, torch_python, script, stopped_at + 5)

    assert ranks.wait() == [0, 0], ranks.log(0)
    assert records(ranks.log(0), "progress")[0]["step"] == stopped_at + 1
    assert f"done at {stopped_at + 5}" in ranks.log(0)
