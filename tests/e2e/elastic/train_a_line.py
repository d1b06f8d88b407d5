"""Fit a line, save every few steps and go on from what was saved last: `train_a_line.py FOLDER`.

Rank 0 tells each step in `FOLDER/steps.jsonl`: its number, the ranks that took it and the loss after it, over
all examples. The ranks take equal parts of them, so that the loss is the same however many ranks there are.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

STEPS_PER_SAVE = 4
STEP_S = 0.1

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
folder = Path(sys.argv[1])
saved = folder / "checkpoint.pt"
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
inputs = torch.randn(60, 8)
targets = inputs @ torch.arange(8.0)[:, None]
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
step = 0
if saved.exists():
    found = torch.load(saved)
    step = found["step"]
    model.module.load_state_dict(found["model"])
while True:
    is_last = torch.tensor(float((folder / "stop").exists()))
    dist.all_reduce(is_last, dist.ReduceOp.MAX)
    if is_last:
        break
    optimizer.zero_grad()
    mse_loss(model(inputs[rank::ranks]), targets[rank::ranks]).backward()
    optimizer.step()
    step += 1
    if rank == 0:
        with torch.no_grad():
            loss = float(mse_loss(model.module(inputs), targets))
        with (folder / "steps.jsonl").open("a") as told:
            told.write(json.dumps({"step": step, "ranks": ranks, "loss": loss}) + "\n")
        if step % STEPS_PER_SAVE == 0:
            fresh = saved.with_suffix(".new")
            torch.save({"step": step, "model": model.module.state_dict()}, fresh)
            fresh.rename(saved)
    time.sleep(STEP_S)
dist.destroy_process_group()
