"""Gradients of session.parallel() beside torch's own, and how sessions end; the first word says which."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

import gangline.train

how, ways = sys.argv[1], {"shared_memory": "gloo" not in sys.argv}
torch_parallel = nn.parallel.DistributedDataParallel


def gradients(wrap, sparse=False, hook=None):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Embedding(20, 8, sparse=sparse), nn.Flatten(), nn.Linear(32, 3))
    parallel = wrap(model)
    if hook:
        parallel.register_comm_hook(None, hook)
    for step in range(3):
        model.zero_grad()
        generator = torch.Generator().manual_seed(step * 10 + session.rank)
        parallel(torch.randint(0, 20, (6, 4), generator=generator)).square().mean().backward()
    return [one.grad.to_dense() if one.grad.is_sparse else one.grad for one in model.parameters()]


def joined(wrap):
    torch.manual_seed(5)
    model = nn.Linear(4, 2)
    parallel, optimizer = wrap(model), torch.optim.SGD(model.parameters(), lr=0.1)
    with parallel.join():
        for step in range(3 + 2 * session.rank):
            optimizer.zero_grad()
            parallel(torch.full((2, 4), step + session.rank + 1.0)).sum().backward()
            optimizer.step()
    return [one.detach() for one in model.parameters()]


if how == "again":
    kept = []
    for turn in range(3):
        with gangline.train.init(**ways) as session:
            checkpoints = session.checkpoints("folder")
            parallel = session.parallel(nn.Linear(4, 4))
            parallel(torch.ones(2, 4)).sum().backward()
            checkpoints.save(turn, {"turn": turn})
            checkpoints.close()
            kept += [session, checkpoints]  # as scripts do
    print("three sessions", flush=True)
    sys.exit()

session = gangline.train.init(**ways)
if how == "averages":
    torch.testing.assert_close(gradients(session.parallel), gradients(torch_parallel))
    torch.testing.assert_close(gradients(session.parallel, True), gradients(torch_parallel, True))
    ours = gradients(session.parallel, hook=bf16_compress_hook)
    torch.testing.assert_close(ours, gradients(torch_parallel, hook=bf16_compress_hook), rtol=0, atol=0)
    torch.testing.assert_close(joined(session.parallel), joined(torch_parallel))
    if session.size == 4:
        pair = [dist.new_group([0, 1]), dist.new_group([2, 3])][session.rank // 2]
        ours = gradients(lambda model: session.parallel(model, process_group=pair))
        torch.testing.assert_close(ours, gradients(lambda model: torch_parallel(model, process_group=pair)))
    with session.parallel(nn.Linear(2, 2)).no_sync():
        pass
    print("as torch", flush=True)
elif how == "lost":
    parallel = session.parallel(nn.Linear(4, 4))
    try:
        for step in range(1000):
            if step == 5 and session.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            parallel(torch.ones(2, 4)).sum().backward()
    except gangline.train.PeerLostError as error:
        print("lost", error.ranks, error, flush=True)
        os._exit(0)
elif how == "uneven":
    began = time.monotonic()
    try:
        with session:
            parallel = session.parallel(nn.Linear(4, 4))
            for _ in range(9 - session.rank):
                parallel(torch.ones(2, 4)).sum().backward()
    except gangline.train.PeerLostError as error:
        print("uneven", error.ranks, round(time.monotonic() - began), error, flush=True)
        sys.exit(1)
elif how == "uneven-collective":
    with session:
        for _ in range(9 - session.rank):
            dist.all_reduce(torch.ones(2))
session.close()
