"""Checkpoints of state that is spread over the ranks: whole on any number of them, or refused by name."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.train

SCRIPT = Path(__file__).with_name("sharded_script.py")


def said(log: str) -> dict[str, tuple[int, str]]:
    found = re.findall(r"^(resumed|saved) (\d+) (\w+)$", log, re.MULTILINE)
    return {what: (int(step), digest) for what, step, digest in found}


@pytest.mark.timeout(900)  # ten processes with torch, on a machine that is busy too
def test_state_of_fsdp_is_the_same_to_the_bit_on_four_two_and_four_ranks(
    ranks, torch_python, tmp_path
) -> None:
    found = []
    for size, steps in ((4, 2), (2, 3), (4, 4)):
        ranks.processes.clear()
        ranks.start(torch_python, SCRIPT, size, "folder", str(steps))
        assert ranks.wait() == [0] * size, ranks.log(0)
        found.append(said(ranks.log(0)))

    assert [(one["resumed"][0], one["saved"][0]) for one in found] == [(0, 2), (2, 3), (3, 4)]
    for before, after in pairwise(found):
        assert after["resumed"] == before["saved"]
    names = {path.name[:20] for path in (tmp_path / "folder").iterdir() if path.is_dir()}
    assert len(names) == 3  # of the three steps that are kept


def test_damaged_part_of_a_rank_is_found(ranks, torch_python, tmp_path) -> None:
    ranks.start(torch_python, SCRIPT, 2, "folder", "2")
    assert ranks.wait() == [0, 0], ranks.log(0)
    (part,) = (tmp_path / "folder").glob("step-00000002.shards-*/__1_0.distcp")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    ranks.processes.clear()
    ranks.start(torch_python, SCRIPT, 2, "folder", "3")

    assert ranks.wait() == [0, 0], ranks.log(0)
    assert f"checkpoint of step 2 is damaged: {part.parent.name}/__1_0.distcp" in ranks.log(0)
    assert said(ranks.log(0))["resumed"][0] == 1


NO_ROOM = """
import resource
import torch, gangline.train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
with gangline.train.init() as session:
    checkpoints = session.checkpoints("folder")
    weight = distribute_tensor(torch.ones(50000), init_device_mesh("cpu", (2,)), [Shard(0)])
    checkpoints.save(1, {"weight": weight})
    if session.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60000, -1))  # within its part of 100 kB
    try:
        checkpoints.save(2, {"weight": weight})
    except gangline.errors.GanglineError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    if session.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    print("resumed", checkpoints.resume().step, flush=True)
"""


def test_disk_without_room_is_said_and_nothing_of_the_step_is_left(ranks, torch_python, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(NO_ROOM)
    ranks.start(torch_python, script, 2)

    assert ranks.wait() == [0, 0], ranks.log(0)
    for rank in range(2):
        assert re.search(r"CheckpointError: cannot save .* step 2 .*File too large", ranks.log(rank))
        assert "resumed 1" in ranks.log(rank)
    assert not [*(tmp_path / "folder").glob("*step-00000002*")]


REFUSED = """
import os, sys
import torch, gangline.train
from torch import nn
how = sys.argv[1]
session = gangline.train.init()
checkpoints = session.checkpoints("folder")
model = nn.Linear(8, 8)
if how == "optimizers-apart":  # as that of FSDP1 is, whose ranks hold one part each under the same name
    adam = torch.optim.Adam(model.parameters())
    model(torch.full((2, 8), 1.0 + session.rank)).sum().backward()
    adam.step()
    state = {"optimizer": adam.state_dict()}
elif how == "sharded-tensor":
    from torch.distributed._shard import sharded_tensor, sharding_spec
    places = [f"rank:{rank}/cpu" for rank in range(session.size)]
    spec = sharding_spec.ChunkShardingSpec(dim=0, placements=places)
    state = {"model": {"weight": sharded_tensor.ones(spec, 4, 4)}}
elif how == "sub-mesh":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    state = {"model": {"weight": distribute_tensor(torch.ones(4), mesh["a"], [Shard(0)])}}
elif how == "pipeline":
    state = {"model": nn.Linear(2 + session.rank, 2).state_dict()}
elif how == "one-rank-only":
    state = {"model": model.state_dict() if session.rank == 0 else {}}
try:
    checkpoints.save(1, state)
except gangline.errors.UserError as error:
    print("refused", error, flush=True)
else:
    print("saved", flush=True)
session.close()
"""


@pytest.mark.parametrize(
    ("how", "size", "want"),
    [
        ("optimizers-apart", 2, 'state["optimizer"]["state"][0]["exp_avg"] has other numbers on rank 1'),
        ("sharded-tensor", 2, 'state["model"]["weight"] is a ShardedTensor'),
        ("sub-mesh", 4, 'state["model"]["weight"] is spread over some of the 4 ranks only'),
        (
            "pipeline",
            2,
            'state["model"]["weight"] is torch.float32 (2, 2) on rank 0 and torch.float32 (2, 3)',
        ),
        ("one-rank-only", 2, ""),
    ],
)
def test_state_of_which_a_part_would_be_lost_is_refused_on_all_ranks(
    ranks, torch_python, tmp_path, how, size, want
) -> None:
    script = tmp_path / "script.py"
    script.write_text(REFUSED)
    ranks.start(torch_python, script, size, how)

    assert ranks.wait() == [0] * size, ranks.log(0)
    for rank in range(size):
        log = ranks.log(rank)
        assert (
            f"refused cannot save the checkpoint of step 1 in `folder`: {want}"
            in re.sub(r"rank 0: (?=state)", "", log)
            if want
            else "saved" in log
        ), log
    left = [path.name for path in (tmp_path / "folder").iterdir() if not path.name.startswith(".")]
    assert bool(left) == (not want)
