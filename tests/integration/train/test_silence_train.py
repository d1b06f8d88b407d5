"""A rank that stops is named while the others wait, with its step and its stack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gangline.train.records import parse_record

pytestmark = pytest.mark.train

SCRIPT = """
import os, signal, sys
import torch, gangline.train
how, who = sys.argv[1], int(sys.argv[2])

def prepare(step):
    if step == 3 and session.rank == who:
        if how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            pass

session = gangline.train.init(silent_after_s=8, shared_memory=how != "loop-gloo")
model = session.parallel(torch.nn.Linear(50, 50))
progress = session.progress(steps=100)
for step in range(100):
    prepare(step)
    loss = model(torch.randn(4, 50)).sum()
    loss.backward()
    progress.step(loss)
"""


@pytest.mark.parametrize(
    ("how", "who", "teller", "want"),
    [
        ("loop", 1, 0, "its stack: script.py:10 prepare < script.py:17 <module>"),
        ("loop-gloo", 0, 0, "its stack: script.py:10 prepare < script.py:17 <module>"),
        ("stop", 1, 0, "its process is stopped"),
        ("stop", 0, 1, "its process is stopped"),
    ],
    ids=["loops", "rank 0 loops over gloo", "is stopped", "rank 0 is stopped"],
)
def test_rank_that_stops_is_named(ranks, torch_python, tmp_path: Path, how, who, teller, want) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ranks.start(torch_python, script, 2, how, str(who))
    ranks.wait_for(lambda: '"kind":"silence"' in ranks.log(teller), "the silence")

    records = [found for line in ranks.log(teller).splitlines() if (found := parse_record(line))]
    (silence,) = [record for record in records if record["kind"] == "silence"]
    assert (silence["rank"], silence["step"], silence["waiting"]) == (who, 3, 1)
    (line,) = [line for line in ranks.log(teller).splitlines() if "waits for it" in line]
    head = "silent since step 3 (" if how == "stop" else "is still in step 4 after "
    assert f"rank {who} on {silence['node']} {head}" in line
    assert "1 other rank waits for it" in line
    assert want in line


SLOW_STEPS = """
import os, sys, time
import torch, gangline.train
session = gangline.train.init(silent_after_s=2)
model = session.parallel(torch.nn.Linear(50, 50))
progress = session.progress(steps=100)
for step in range(100):
    time.sleep(4)  # what a step computes: longer than all patience with steps of unknown length
    while step == 3 and session.rank == 1:
        pass
    loss = model(torch.randn(4, 50)).sum()
    loss.backward()
    progress.step(loss)
"""


def test_long_steps_are_no_silence_and_a_rank_that_hangs_in_one_is(ranks, torch_python, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SLOW_STEPS)
    ranks.start(torch_python, script, 2)
    ranks.wait_for(lambda: '"kind":"silence"' in ranks.log(0), "the silence")

    records = [found for line in ranks.log(0).splitlines() if (found := parse_record(line))]
    (silence,) = [record for record in records if record["kind"] == "silence"]
    assert (silence["rank"], silence["step"], silence["waiting"]) == (1, 3, 1)
    assert silence["for_s"] > silence["step_s"] >= 4
    (line,) = [line for line in ranks.log(0).splitlines() if "waits for it" in line]
    assert "is still in step 4 after " in line
    assert f"(steps took up to {silence['step_s']} s until now)" in line


def test_ranks_that_stop_together_are_all_named_by_one_that_is_left(
    ranks, torch_python, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("session.rank == who", "session.rank != who"))
    ranks.start(torch_python, script, 4, "stop", "2")
    ranks.wait_for(lambda: ranks.log(2).count('"kind":"silence"') == 3, "the silence of three ranks")

    told = [line for line in ranks.log(2).splitlines() if "silent since step 3" in line]
    assert sorted(line.split()[2] for line in told) == ["0", "1", "3"]
    assert all("its process is stopped" in line for line in told)


PLAIN = """
import os, signal, sys
import torch, torch.distributed as dist, gangline.train

def prepare(step):
    if step == 20 and dist.get_rank() == 1:
        if sys.argv[1] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            pass

dist.init_process_group("gloo")
gangline.train.watch(silent_after_s=5)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(50, 50))
for step in range(100):
    prepare(step)
    model(torch.randn(4, 50)).sum().backward()
"""


@pytest.mark.parametrize(
    ("how", "want"), [("loop", "its stack: script.py:9 prepare < "), ("stop", "its process is stopped")]
)
def test_rank_of_a_plain_script_is_named(ranks, torch_python, tmp_path: Path, how, want) -> None:
    script = tmp_path / "script.py"
    script.write_text(PLAIN)
    ranks.start(torch_python, script, 2, how)
    ranks.wait_for(lambda: '"kind":"silence"' in ranks.log(0), "the silence")

    (line,) = [line for line in ranks.log(0).splitlines() if "waits for it" in line]
    assert re.search(
        r"rank 1 on \S+ has not got on for \d+ s; 1 other rank waits for it in gloo:all_reduce; ", line
    ), line
    assert want in line
