"""Fits a line by `gangline.train.run_elastic` until FOLDER/stop is there; rank 0 tells each step.

A told step is a line of FOLDER/steps.jsonl: its number, the ranks that took it and the loss after it over all
examples, of which ranks take equal parts, so that the loss is the same however many ranks there are. Each
start of a process is a line of FOLDER/started.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import mse_loss

import gangline.train

STEPS_PER_COMMIT = 4
STEP_S = 0.1

folder = Path(sys.argv[1])
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
inputs = torch.randn(60, 8)
targets = inputs @ torch.arange(8.0)[:, None]
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
state = gangline.train.ElasticState(model=model, optimizer=optimizer, step=0)
with (folder / "started").open("a") as started:
    started.write(f"{os.environ.get('HOSTNAME')} {os.getpid()}\n")


def train(session, state):
    parallel = session.parallel(state.model)
    while True:
        if session.reduce({"stop": float((folder / "stop").exists())}, "max")["stop"]:
            return
        state.optimizer.zero_grad()
        mse_loss(
            parallel(inputs[session.rank :: session.size]), targets[session.rank :: session.size]
        ).backward()
        state.optimizer.step()
        state.step += 1
        if session.rank == 0:
            with torch.no_grad():
                loss = float(mse_loss(state.model(inputs), targets))
            with (folder / "steps.jsonl").open("a") as told:
                told.write(json.dumps({"step": state.step, "ranks": session.size, "loss": loss}) + "\n")
        time.sleep(STEP_S)
        if state.step % STEPS_PER_COMMIT == 0:
            state.commit()


gangline.train.run_elastic(train, state)
