"""What a checkpoint takes it gives back; what it could not give back it refuses at the first save."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.train

CONTENTS = Path(__file__).with_name("contents_script.py")
KILLED = Path(__file__).with_name("killed_saves_script.py")
SAVED_AGAIN = Path(__file__).with_name("saved_again_script.py")
ROUNDS = os.environ.get("GANGLINE_KILL_ROUNDS", "20")


def test_usual_contents_come_back_as_they_were(ranks, torch_python) -> None:
    for what in ("save", "resume"):
        ranks.processes.clear()
        ranks.start(torch_python, CONTENTS, 1, "folder", what)
        assert ranks.wait() == [0], ranks.log(0)

    assert "all came back" in ranks.log(0)


REFUSED = """
import argparse, collections, dataclasses
import torch, gangline.train

class Plain:
    pass

@dataclasses.dataclass
class Runs:
    path: str
    def __post_init__(self):
        print("ran code")

session = gangline.train.init()
checkpoints = session.checkpoints("folder")
checkpoints.save(1, {"model": {"w": torch.ones(3)}})
cases = [
    ({"args": {"plain": [Plain()]}}, None),
    ({"model": torch.nn.Linear(2, 2)}, None),
    ({"counts": collections.defaultdict(lambda: 0)}, None),
    ({}, {"place": Runs("/data")} if session.rank == 1 else None),
]
for state, own in cases:
    try:
        checkpoints.save(2, state, own=own)
    except gangline.errors.UserError as error:
        print("refused", error, "| hint:", error.hint, flush=True)
torch.serialization.add_safe_globals([Plain])
checkpoints.save(3, {"plain": Plain()})
print("resumed", checkpoints.resume().step, flush=True)
session.close()
"""


def test_what_cannot_be_read_back_is_refused_by_its_key_on_all_ranks(ranks, torch_python, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(REFUSED)
    ranks.start(torch_python, script, 2)

    assert ranks.wait() == [0, 0], ranks.log(0)
    for rank in range(2):
        refused = re.findall(r"^refused (.*)$", ranks.log(rank), re.MULTILINE)
        head = "cannot save the checkpoint of step 2 in `folder`: rank"
        wants = [
            (f'{head} 0: state["args"]["plain"][0]: Plain cannot be read back', "add_safe_globals([Plain])"),
            (f'{head} 0: state["model"]: torch.nn.modules.linear.Linear cannot', "give its state_dict()"),
            (f'{head} 0: state["counts"]: collections.defaultdict with the factory', "give dict(…) of it"),
            (f'{head} 1: own["place"]: Runs cannot be read back', "give dataclasses.asdict(…) of it"),
        ]
        for line, (text, hint) in zip(refused, wants, strict=True):
            assert text in line, line
            assert hint in line, line
        assert "resumed 3" in ranks.log(rank)
    left = {path.name[:13] for path in (tmp_path / "folder").iterdir() if path.name.startswith("step")}
    assert left == {"step-00000001", "step-00000003"}
    assert not [*(tmp_path / "folder").glob("*.part")]


FULL = """
import resource, signal, sys
import torch, gangline.train
session = gangline.train.init()
checkpoints = session.checkpoints("folder")
checkpoints.save(1, {"w": torch.ones(1000)})
if session.rank == 0:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    checkpoints.save(2, {"w": torch.ones(100_000)})
except gangline.train.CheckpointError as error:
    print("failed", error, flush=True)
print("resumed", checkpoints.resume().step, flush=True)
session.close()
"""


def test_full_disk_of_one_rank_is_an_error_on_all_and_the_last_step_stays(
    ranks, torch_python, tmp_path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(FULL)
    ranks.start(torch_python, script, 2)

    assert ranks.wait() == [0, 0], ranks.log(0)
    for rank in range(2):
        log = ranks.log(rank)
        assert "failed cannot save the checkpoint of step 2 in `folder`: rank 0: File too large" in log, log
        assert "resumed 1" in log


def test_saves_killed_at_any_moment_lose_no_step_that_was_acknowledged(torch_python, tmp_path) -> None:
    here = Path(__file__).resolve().parents[3] / "src"
    environment = os.environ | {"PYTHONPATH": str(here), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [torch_python, str(KILLED), str(tmp_path / "folder"), ROUNDS, "7"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ROUNDS} rounds" in done.stdout
    assert "none lost" in done.stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["plain", pytest.param("sharded", marks=pytest.mark.slow)])
def test_a_step_saved_again_is_the_old_save_or_the_new_wherever_a_kill_falls(
    torch_python, tmp_path, mode
) -> None:
    line = [torch_python, str(SAVED_AGAIN), str(tmp_path / "folder"), mode]
    here = Path(__file__).parents[3] / "src"
    environment = os.environ | {"PYTHONPATH": str(here), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=900, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "the old save or the new" in done.stdout
