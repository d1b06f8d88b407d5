"""Run in every worker: trains a line through points with an elastic state.

Arguments: the number of steps, and how many seconds each takes at least.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch

import horovod.torch as hvd

STEPS, STEP_S = int(sys.argv[1]), float(sys.argv[2])
SAMPLES = 96
BATCH = 24  # of all ranks together: divided by 4, 3 and 2
COMMIT_EVERY = 5


@hvd.elastic.run
def train(state) -> None:
    tell(event="begins", pid=os.getpid(), rank=hvd.rank(), size=hvd.size(), step=state.step)
    while state.step < STEPS:
        if len(state.sampler.remaining_indices) < BATCH:
            state.sampler.set_epoch(state.sampler.epoch + 1)
        time.sleep(STEP_S)
        rows = list(state.sampler)[: BATCH // hvd.size()]
        x = torch.tensor(rows, dtype=torch.float32).view(-1, 1) / SAMPLES
        state.optimizer.zero_grad()
        loss = ((state.model(x) - (3 * x + 1)) ** 2).mean()
        loss.backward()
        state.optimizer.step()
        state.sampler.record_batch(0, len(rows))
        state.sampler.reset()
        loss = hvd.allreduce(loss.detach(), name="loss").item()
        state.step += 1
        if hvd.rank() == 0:
            tell(event="step", step=state.step, loss=loss)
        if state.step % COMMIT_EVERY == 0:
            state.commit()


def tell(**values) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(SAMPLES))
    train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, step=0))
    weights = [round(one.item(), 6) for one in model.parameters()]
    tell(event="ends", rank=hvd.rank(), size=hvd.size(), weights=weights)
