"""Training on FSDP2 as the guide writes it: resume, train, save; prints digests of the whole state.

Words: FOLDER STEPS.
"""

import hashlib
import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import gangline.train


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).numpy().tobytes()


folder, steps = sys.argv[1], int(sys.argv[2])
with gangline.train.init() as session:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(13, 7), nn.ReLU(), nn.Linear(7, 5))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    checkpoints = session.checkpoints(folder)
    found = checkpoints.resume()
    done = found.step if found else 0
    if found:
        model.load_state_dict(found.state["model"])
        optimizer.load_state_dict(found.state["optimizer"])

    def say(what, step):
        digest = hashlib.sha256()
        for tensor in model.state_dict().values():
            digest.update(whole(tensor))
        for of_parameter in optimizer.state_dict()["state"].values():
            for tensor in of_parameter.values():
                digest.update(whole(tensor))
        if session.rank == 0:
            print(what, step, digest.hexdigest(), flush=True)

    say("resumed", done)
    for step in range(done + 1, steps + 1):
        optimizer.zero_grad()
        batch = torch.randn(4, 13, generator=torch.Generator().manual_seed(step))  # the same on all ranks
        model(batch).square().mean().backward()
        optimizer.step()
        checkpoints.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    say("saved", steps)
