"""An elastic training with a global batch of 12; says where it begins and its loss at every commit."""

import os
import signal
import sys
import time

import torch

import gangline.train
from gangline.train import start

steps, pause_s, ways = int(sys.argv[1]), float(sys.argv[2]), {"shared_memory": "gloo" not in sys.argv}
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(20, 60), torch.nn.ReLU(), torch.nn.Linear(60, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
state = gangline.train.ElasticState(model=model, optimizer=optimizer, step=0)
data = torch.randn(1200, 20, generator=torch.Generator().manual_seed(1))
wanted = data.square().mean(1, keepdim=True)


def train(session, state):
    worker = os.environ.get("GANGLINE_ELASTIC_WORKER")
    place = f"rank {session.rank} of {session.size} at step {state.step}"
    print(f"worker {worker} pid {os.getpid()} is {place} {time.time()}", flush=True)
    parallel = session.parallel(state.model)
    while state.step < steps:
        order = torch.randint(1200, (12,), generator=torch.Generator().manual_seed(state.step))
        batch = order[session.rank :: session.size]
        state.optimizer.zero_grad()
        loss = (parallel(data[batch]) - wanted[batch]).square().mean()
        loss.backward()
        state.optimizer.step()
        state.step += 1
        time.sleep(pause_s)
        if state.step % 5 == 0:
            whole = session.reduce({"loss": loss.detach()})["loss"]
            if session.rank == 0:
                print(f"loss of step {state.step}: {whole:.9f}", flush=True)
            state.commit()
        if "asks" in sys.argv and session.should_stop():
            session.exit_to_resume()


def dies_while_meeting(*words, **named):
    """End worker 1 of the second generation when it has met the others, and made no group with them yet."""
    facts = exchange(*words, **named)
    if os.environ["GANGLINE_ELASTIC_WORKER"] == "1" and len(facts) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return facts


if "dies" in sys.argv:
    exchange, start.exchange = start.exchange, dies_while_meeting
gangline.train.run_elastic(train, state, **ways)
print("done", flush=True)
