"""Asked to stop, all ranks save the same step, end with 75, and go on from there; others die as ever."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.errors import EXIT_RESUME

pytestmark = pytest.mark.train

SCRIPT = """
import hashlib, sys, time
import torch, gangline.train
def say(*words):  # a line is one write: torchrun starts its ranks unbuffered, and they share one file
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
steps, asks = int(sys.argv[1]), sys.argv[2] == "asks"
with gangline.train.init() as session:
    torch.manual_seed(3)
    model = torch.nn.Linear(20, 5)
    parallel = session.parallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    checkpoints = session.checkpoints("folder")
    found = checkpoints.resume()
    done = found.step if found else 0
    if found:
        model.load_state_dict(found.state["model"])
    say("resumed", done)
    for step in range(done + 1, steps + 1):
        optimizer.zero_grad()
        batch = torch.randn(8, 20, generator=torch.Generator().manual_seed(step))
        parallel(batch).square().mean().backward()
        optimizer.step()
        say("step", step)
        time.sleep(0.05)
        if asks and session.should_stop():
            checkpoints.save(step, {"model": model.state_dict()})
            say("saved", step)
            session.exit_to_resume()
    digest = hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest()
    say("digest", digest)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize(("number", "who"), [(signal.SIGTERM, 1), (signal.SIGUSR1, 0)])
def test_signal_to_one_rank_ends_all_at_the_same_step_with_a_checkpoint(
    ranks, torch_python, script, number, who
) -> None:
    ranks.start(torch_python, script, 2, "100000", "asks")
    ranks.wait_for(lambda: "step 3\n" in ranks.log(who), "the third step")
    ranks.processes[who].send_signal(number)

    assert ranks.wait() == [EXIT_RESUME, EXIT_RESUME], ranks.log(0)
    (step,) = {re.findall(r"^saved (\d+)$", ranks.log(rank), re.MULTILINE)[0] for rank in range(2)}
    assert all(re.findall(r"^step (\d+)$", ranks.log(rank), re.MULTILINE)[-1] == step for rank in range(2))
    ranks.processes.clear()
    ranks.start(torch_python, script, 2, str(int(step) + 3), "asks")
    assert ranks.wait() == [0, 0], ranks.log(0)
    assert f"resumed {step}\n" in ranks.log(0)
    assert "digest" in ranks.log(0)


def test_script_that_does_not_ask_dies_of_the_signal(ranks, torch_python, script) -> None:
    ranks.start(torch_python, script, 1, "100000", "never")
    ranks.wait_for(lambda: "step 3\n" in ranks.log(0), "the third step")
    ranks.processes[0].send_signal(signal.SIGTERM)

    assert ranks.wait() == [-signal.SIGTERM]


def test_torchrun_that_is_asked_to_end_lets_its_ranks_save(ranks, torch_python, script, tmp_path) -> None:
    line = [
        torch_python,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        str(script),
        "100000",
        "asks",
    ]
    with (tmp_path / "rank-0.log").open("wb") as log:
        ranks.processes.append(
            subprocess.Popen(
                line, cwd=tmp_path, env=ranks.environment(), stdout=log, stderr=subprocess.STDOUT
            )
        )
    ranks.wait_for(lambda: "step 3\n" in ranks.log(0), "the third step")
    ranks.processes[0].send_signal(signal.SIGTERM)

    assert ranks.wait() != [0]
    assert len(set(re.findall(r"^saved (\d+)$", ranks.log(0), re.MULTILINE))) == 1, ranks.log(0)


def test_launch_that_is_asked_to_end_lets_its_ranks_save_and_says_so(
    ranks, torch_python, script, tmp_path
) -> None:
    gangline = [sys.executable, "-m", "gangline", "launch", "-n", "2", "--"]
    with (tmp_path / "rank-0.log").open("wb") as log:
        ranks.processes.append(
            subprocess.Popen(
                [*gangline, torch_python, str(script), "100000", "asks"],
                cwd=tmp_path,
                env=ranks.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        )
    ranks.wait_for(lambda: "step 3\n" in ranks.log(0), "the third step")
    ranks.processes[0].send_signal(signal.SIGTERM)

    assert ranks.wait() == [EXIT_RESUME], ranks.log(0)
    assert len(re.findall(r"saved (\d+)$", ranks.log(0), re.MULTILINE)) == 2, ranks.log(0)
    assert "all ranks saved and ended" in ranks.log(0)
