"""Run in every worker: trains a line through points with an elastic state.

Arguments: the number of steps, how many seconds each takes at least, and, for one worker that is lost:
WHEN:WORKER:GENERATION:SIGNAL, the signal that it sends itself; WHEN is one of `MEETING` or ``training``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import torch

import horovod.torch as hvd
from horovod.engine import generations, job

STEPS, STEP_S = int(sys.argv[1]), float(sys.argv[2])
SAMPLES = 96
BATCH = 24  # of all ranks together: divided by 4, 3 and 2
COMMIT_EVERY = 5
MEETING = {"store": "open_store", "facts": "exchange", "group": "_make_process_group", "link": "meet"}
"""What a rank does first, and the function that does it."""


@hvd.elastic.run
def train(state) -> None:
    tell(event="begins", pid=os.getpid(), rank=hvd.rank(), size=hvd.size(), step=state.step)
    if LOST[0] == "training":
        end_if_lost()
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


LOST = sys.argv[3].split(":") if len(sys.argv) > 3 else [""]


def end_if_lost() -> None:
    _, worker, generation, number = LOST
    shown = generations.board()
    if (str(shown.worker), str(shown.generation)) == (worker, generation):
        tell(event="lost", worker=shown.worker)
        os.kill(os.getpid(), getattr(signal, number))


def is_lost_before(name: str) -> None:
    """Let the worker be lost before it does something while it meets the others."""
    does = getattr(job, name)

    def first(*words, **named):
        end_if_lost()
        return does(*words, **named)

    setattr(job, name, first)


if __name__ == "__main__":
    if LOST[0] in MEETING:
        is_lost_before(MEETING[LOST[0]])
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(SAMPLES))
    train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, step=0))
    weights = [round(one.item(), 6) for one in model.parameters()]
    tell(event="ends", rank=hvd.rank(), size=hvd.size(), weights=weights)
