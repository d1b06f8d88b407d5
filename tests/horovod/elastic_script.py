"""Run in every rank: trains a line through points with an elastic state; one rank ends in the middle.

Arguments: the step at which a rank is killed, the rank, the number of steps.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import torch

import horovod.torch as hvd

KILLED_AT, VICTIM, STEPS = map(int, sys.argv[1:])
SAMPLES = 96
BATCH = 24  # of all ranks together: divided by 4, 3 and 2
COMMIT_EVERY = 5


@hvd.elastic.run
def train(state) -> None:
    tell(event="begins", rank=hvd.rank(), size=hvd.size(), step=state.step, at=time.time())
    while state.step < STEPS:
        if len(state.sampler.remaining_indices) < BATCH:
            state.sampler.set_epoch(state.sampler.epoch + 1)
        if state.step == KILLED_AT and LAUNCHER_RANK == VICTIM and hvd.size() == FIRST_SIZE:
            tell(event="killed", at=time.time())
            os.kill(os.getpid(), signal.SIGKILL)
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
            tell(event="step", step=state.step, loss=loss, size=hvd.size(), at=time.time())
        if state.step % COMMIT_EVERY == 0:
            state.commit()


def tell(**values) -> None:
    sys.stdout.write(json.dumps({"of": LAUNCHER_RANK} | values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    LAUNCHER_RANK = int(os.environ["RANK"])
    hvd.init()
    FIRST_SIZE = hvd.size()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(SAMPLES))
    train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, step=0))
    weights = [round(one.item(), 6) for one in model.parameters()]
    tell(event="ends", rank=hvd.rank(), size=hvd.size(), weights=weights)
