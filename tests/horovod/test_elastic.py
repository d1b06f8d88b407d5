"""A rank of an elastic job is killed: the others go on in their processes from the last commit."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launch_ranks import environment

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
KILLED_AT, STEPS, COMMITTED = 12, 40, 10
RECOVERY_S = 10.0


@pytest.fixture(scope="module", params=[0, 2])
def told(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What four ranks say, of which the launcher's rank 0 or 2 kills itself."""
    python = os.environ.get("GANGLINE_TRAIN_PYTHON")
    if not python:
        pytest.skip("GANGLINE_TRAIN_PYTHON is not set: run `make test-horovod`")
    script = [str(HERE / "elastic_script.py"), str(KILLED_AT), str(request.param), str(STEPS)]
    ended = subprocess.run(
        [python, str(HERE / "elastic_launcher.py"), "4", python, *script],
        env=environment(os.environ.get("GANGLINE_HOROVOD_OVERLAY", "")),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert any(line["event"] == "killed" for line in lines), ended.stderr[-3000:]
    return lines


def said(told: list[dict[str, Any]], event: str, **wanted: Any) -> list[dict[str, Any]]:
    return [
        line
        for line in told
        if line["event"] == event and all(line[name] == value for name, value in wanted.items())
    ]


def test_three_go_on_and_end_with_the_same_weights(told: list[dict[str, Any]]) -> None:
    ends = said(told, "ends")
    assert sorted(end["rank"] for end in ends) == [0, 1, 2]
    assert [end["weights"] for end in ends] == [ends[0]["weights"]] * 3


def test_they_go_on_from_the_last_commit_within_seconds(told: list[dict[str, Any]]) -> None:
    (killed,) = said(told, "killed")
    begins = said(told, "begins", size=3)
    assert [begin["step"] for begin in begins] == [COMMITTED] * 3
    assert max(begin["at"] for begin in begins) - killed["at"] < RECOVERY_S


def test_rank_0_is_an_old_worker_and_the_loss_goes_on_falling(told: list[dict[str, Any]]) -> None:
    victim = said(told, "killed")[0]["of"]
    first = said(told, "begins", size=3, rank=0)[0]
    assert first["of"] == min({0, 1, 2, 3} - {victim})
    losses = {line["step"]: line["loss"] for line in said(told, "step")}
    assert losses[STEPS] < losses[COMMITTED] < losses[1]


def test_the_kept_steps_are_each_taken_once_by_all_samples(told: list[dict[str, Any]]) -> None:
    with_four = [line["step"] for line in said(told, "step", size=4)]
    with_three = [line["step"] for line in said(told, "step", size=3)]
    assert with_four == list(range(1, KILLED_AT + 1))
    assert with_three == list(range(COMMITTED + 1, STEPS + 1))
