"""Checkpoints: a training killed at any moment resumes to the parameters of an uninterrupted one."""

from __future__ import annotations

import random
import re
import signal
import time
from pathlib import Path

import pytest

from gangline.train.records import parse_record

pytestmark = pytest.mark.train

STEPS = 40
SCRIPT = """
import hashlib, sys, time
import torch, gangline.train
from torch import nn
steps, folder, hold_at = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else 0
session = gangline.train.init()
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(20, 60), nn.Dropout(0.3), nn.Linear(60, 5))
parallel = session.parallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
torch.manual_seed(100 + session.rank)  # other batches and other dropouts on every rank
checkpoints = session.checkpoints(folder, keep=2)
found = checkpoints.resume()
done = 0
if found is not None:
    model.load_state_dict(found.state["model"])
    optimizer.load_state_dict(found.state["optimizer"])
    done = found.step
    assert found.own == {"seen": done}, found.own
if session.rank == 0:
    print("resumed", done, flush=True)
for step in range(done + 1, steps + 1):
    optimizer.zero_grad()
    parallel(torch.randn(8, 20)).square().mean().backward()
    optimizer.step()
    checkpoints.save(
        step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, own={"seen": step}
    )
    if session.rank == 0:
        print("saved", step, flush=True)
    while step == hold_at:
        time.sleep(1)  # the kill may come late
if session.rank == 0:
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    print("digest", hashlib.sha256(flat.numpy().tobytes()).hexdigest(), flush=True)
checkpoints.close()
session.close()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def digest(log: str) -> str:
    (found,) = re.findall(r"^digest (\w+)$", log, re.MULTILINE)
    return found


@pytest.mark.parametrize("behind", [False, True], ids=["before-it-goes-on", "behind-the-training"])
def test_training_killed_at_random_moments_resumes_to_the_same_bits(
    ranks, torch_python, script, tmp_path, behind
) -> None:
    if behind:  # a save is complete when the next one begins
        script.write_text(SCRIPT.replace('own={"seen": step}', 'own={"seen": step}, wait=False'))
    ranks.start(torch_python, script, 2, str(STEPS), "whole")
    assert ranks.wait() == [0, 0], ranks.log(0)
    want = digest(ranks.log(0))
    generator = random.Random(5)
    for kill_at in (8, 21):
        ranks.processes.clear()
        ranks.start(torch_python, script, 2, str(STEPS), "killed", str(STEPS - 5))
        ranks.wait_for(lambda at=kill_at: f"saved {at}\n" in ranks.log(0), f"step {kill_at}")
        spin_until = time.monotonic() + generator.random() * 0.02  # anywhere in a step or in a save
        while time.monotonic() < spin_until:
            pass
        ranks.processes[generator.randrange(2)].send_signal(signal.SIGKILL)
        ranks.end()
    ranks.processes.clear()
    ranks.start(torch_python, script, 2, str(STEPS), "killed")

    assert ranks.wait() == [0, 0], ranks.log(0)
    resumed = int(re.findall(r"resumed (\d+)", ranks.log(0))[0])
    assert 21 - behind <= resumed < STEPS
    assert digest(ranks.log(0)) == want
    names = sorted(path.name for path in (tmp_path / "killed").iterdir())
    assert [name for name in names if name.endswith(".part")] == []
    assert {int(name[5:13]) for name in names if name.startswith("step-")} == {STEPS - 1, STEPS}


def test_damaged_file_is_skipped_with_a_message(ranks, torch_python, script, tmp_path) -> None:
    ranks.start(torch_python, script, 2, "5", "folder")
    assert ranks.wait() == [0, 0], ranks.log(0)
    (newest,) = (tmp_path / "folder").glob("step-00000005.rank-1-of-2-*.pt")
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    ranks.processes.clear()
    ranks.start(torch_python, script, 2, "6", "folder")

    assert ranks.wait() == [0, 0], ranks.log(0)
    assert f"checkpoint of step 5 is damaged: {newest.name}" in ranks.log(0)
    assert "resumed 4" in ranks.log(0)


LOST = """
import os
import torch, gangline.train
session = gangline.train.init()
checkpoints = session.checkpoints("folder")
checkpoints.save(1, {"weight": torch.ones(3)})
if session.rank == 1:
    os._exit(9)
try:
    checkpoints.save(2, {"weight": torch.ones(3)})
except gangline.train.PeerLostError as error:
    print("lost", error.ranks, flush=True)
"""


def test_rank_that_is_lost_in_a_save_is_named_and_leaves_no_file_of_the_step(
    ranks, torch_python, tmp_path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOST)
    ranks.start(torch_python, script, 2)

    assert ranks.wait() == [0, 9], ranks.log(0)
    assert "lost (1,)\n" in ranks.log(0)
    assert {path.name[:13] for path in (tmp_path / "folder").glob("*step-*")} == {"step-00000001"}
    # Of what is complete on disk programs are told, by rank 0.
    told = [parse_record(line) for line in ranks.log(0).splitlines()]
    assert [one for one in told if one and one["kind"] == "checkpoint"] == [{"kind": "checkpoint", "step": 1}]
    assert '"checkpoint"' not in ranks.log(1)


BEHIND = """
import os, resource, signal
import torch, torch.distributed as dist, torch.distributed.checkpoint, gangline.train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
session = gangline.train.init()
checkpoints = session.checkpoints("folder")
weight = torch.ones(1_000_000)
tied = {"a": weight, "b": weight.detach(), "list": [1], "spread": None}
mesh = init_device_mesh("cpu", (2,))
for step in range(1, 6):
    tied["spread"] = distribute_tensor(weight.clone(), mesh, [Shard(0)])
    checkpoints.save(step, tied, own=torch.full((2,), float(step)), wait=False)
    weight += 1  # the training goes on, with collectives of its own
    tied["list"].append(step)
    for _ in range(20):
        dist.all_reduce(torch.ones(1000))
found = checkpoints.resume()
state = found.state
print("numbers", found.step, state["a"].unique().tolist(), state["list"], found.own.tolist(), flush=True)
print("tied", state["a"].data_ptr() == state["b"].data_ptr(), flush=True)
print("spread", state["spread"].full_tensor().unique().tolist(), flush=True)
if session.rank == 1:  # its disk is full from now on
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
checkpoints.save(6, {"weight": weight}, own=weight, wait=False)
try:
    checkpoints.wait()
except gangline.train.CheckpointError as error:
    os.write(1, f"error {error}\\n".encode())
session.close()
"""


def test_save_behind_the_training_keeps_what_was_given_and_tells_its_errors_later(
    ranks, torch_python, tmp_path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEHIND)
    ranks.start(torch_python, script, 2)

    assert ranks.wait() == [0, 0], ranks.log(0) + ranks.log(1)
    for rank in range(2):
        assert "numbers 5 [5.0] [1, 1, 2, 3, 4] [5.0, 5.0]\n" in ranks.log(rank)
        assert "tied True\n" in ranks.log(rank)
        assert "spread [5.0]\n" in ranks.log(rank)
    assert "error cannot save the checkpoint of step 6 in `folder`: rank 1: File too large" in ranks.log(0)
    steps = {path.name[:13] for path in (tmp_path / "folder").glob("*step-*")}
    assert steps == {f"step-{step:08d}" for step in (3, 4, 5)}


LAYOUTS = """
import torch, gangline.train
session = gangline.train.init()
checkpoints = session.checkpoints("folder")
numbers = torch.arange(4096.0).view(64, 64)
image = torch.arange(64 * 3 * 4 * 4.0).view(64, 3, 4, 4)
kept = {
    "expanded": torch.full((1,), 3.0).expand(50, 40),
    "gapped": torch.stack((numbers, -numbers), 2)[..., 0],
    "turned": numbers.t().contiguous().t(),
    "images": image.to(memory_format=torch.channels_last),
    "part": torch.cat((numbers, numbers + 1))[3:61, 5:60],
}
dense = {name: tensor.contiguous().clone() for name, tensor in kept.items()}

def state(tensors):
    return {"optimizer": {"state": {0: tensors}, "param_groups": []}}

for step, wait in ((1, True), (2, False)):
    for writer in (kept, dense):  # rank 0 has them one way, the other rank the other way
        others = dense if writer is kept else kept
        checkpoints.save(step, state(writer if session.rank == 0 else others), wait=wait)
    checkpoints.save(step, state(kept), wait=wait)
checkpoints.wait()
for name in kept:
    changed = dict(kept)
    if session.rank == 1:
        changed[name] = kept[name] + 1
    checkpoints.save(3, state(changed), wait=False)
    try:
        checkpoints.wait()
    except gangline.errors.UserError as error:
        if f'["{name}"] has other numbers' in str(error):
            print("refused", name, flush=True)
print("kept", checkpoints.resume().step, flush=True)
session.close()
"""


def test_the_same_numbers_are_the_same_however_they_lie_in_memory(ranks, torch_python, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LAYOUTS)
    ranks.start(torch_python, script, 2)

    assert ranks.wait() == [0, 0], ranks.log(0)
    for rank in range(2):
        assert re.findall(r"^refused (\w+)$", ranks.log(rank), re.MULTILINE) == [
            *("expanded", "gapped", "turned", "images", "part")
        ]
        assert "kept 2\n" in ranks.log(rank)


OWN = """
import sys
import gangline.train
with gangline.train.init() as session:
    checkpoints = session.checkpoints("folder")
    if sys.argv[1] == "save":
        checkpoints.save(7, {"x": 1}, own={"seen": [session.rank * 10, session.rank * 10 + 1]})
    else:
        def reshard(owns):
            seen = [sample for own in owns for sample in own["seen"]]
            return seen[session.rank :: session.size]
        found = checkpoints.resume(reshard=reshard)
        print("own", found.step, found.own, flush=True)
"""


def test_what_ranks_had_as_their_own_is_shared_out_to_another_number(ranks, torch_python, tmp_path) -> None:
    script = tmp_path / "own.py"
    script.write_text(OWN)
    for size, how in ((3, "save"), (2, "reshard")):
        ranks.processes.clear()
        ranks.start(torch_python, script, size, how)
        assert ranks.wait() == [0] * size, ranks.log(0)

    assert "own 7 [0, 10, 20]" in ranks.log(0)
    assert "own 7 [1, 11, 21]" in ranks.log(1)

    damaged = next((tmp_path / "folder").glob("step-*.rank-2-of-3-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    ranks.processes.clear()
    ranks.start(torch_python, script, 2, "reshard")
    assert ranks.wait() != [0, 0]
    assert "step 7 is damaged" in ranks.log(0)
