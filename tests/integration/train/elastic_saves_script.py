"""An elastic training that saves; says where it begins, what it saved: FOLDER STEPS PAUSE_S waits|behind."""

import os
import sys
import time
from pathlib import Path

import torch

import gangline.train

folder, steps, pause_s, way = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
torch.manual_seed(3)
model = torch.nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
state = gangline.train.ElasticState(model=model, optimizer=optimizer, step=0)


def train(session, state):
    checkpoints = session.checkpoints(folder, keep=2)
    found = checkpoints.resume()
    on_disk = found.step if found is not None else 0
    if on_disk > state.step:
        state.model.load_state_dict(found.state["model"])
        state.optimizer.load_state_dict(found.state["optimizer"])
        state.step = on_disk
    place = f"rank {session.rank} of {session.size} at step {state.step}, {on_disk} on disk"
    worker = os.environ.get("GANGLINE_ELASTIC_WORKER")
    print(f"worker {worker} pid {os.getpid()} is {place}", flush=True)
    parallel = session.parallel(state.model)
    saved = on_disk
    while state.step < steps:
        state.optimizer.zero_grad()
        parallel(torch.full((8, 20), float(state.step % 7))).square().mean().backward()
        state.optimizer.step()
        state.step += 1
        time.sleep(pause_s)
        if state.step == 12 and f"worker-{worker}-hangs" in sys.argv:
            print(f"worker {worker} hangs, process {os.getpid()}", flush=True)
            time.sleep(1000)
        if state.step % 3 == 0:
            whole = {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}
            checkpoints.save(state.step, whole, own={"rank": session.rank}, wait=way == "waits")
            complete, saved = (state.step if way == "waits" else saved), state.step
            print(f"rank {session.rank} knows that {complete} is saved", flush=True)
        if state.step % 5 == 0:
            state.commit()


gangline.train.run_elastic(train, state)
print("done", flush=True)
