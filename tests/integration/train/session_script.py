"""What every rank does in the tests of init(): gradients of both ways, and what the session says."""

import hashlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

import gangline.train

if "two-nodes" in sys.argv:  # each half of the ranks sees a memory of its own
    from gangline.train.collectives import nodes

    half = f"half-{int(os.environ['RANK']) * 2 // int(os.environ['WORLD_SIZE'])}"
    nodes.memory_domain = lambda: half
session = gangline.train.init()
found = {"ranks": [session.rank, session.size, session.local_rank, session.ranks.node_rank]}
found |= {"launcher": session.ranks.launcher, "backend": session.backend, "threads": torch.get_num_threads()}
found |= {"shared": not session.no_shared_memory, "why": session.no_shared_memory}

for kind in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    everyone = [
        torch.randn(70001, generator=torch.Generator().manual_seed(rank)).to(kind)
        for rank in range(session.size)
    ]
    if session.size > 1:
        # over several nodes half precision is rounded once for each node, and in gloo
        atol = 0.02 if kind.itemsize == 2 and "two-nodes" in sys.argv else 1e-5
        mine = everyone[session.rank].clone()
        dist.all_reduce(mine, dist.ReduceOp.AVG)
        total = everyone[0].double()
        for other in everyone[1:]:
            total += other.double()
        torch.testing.assert_close(
            mine.double(), (total / session.size).to(kind).double(), rtol=1e-2, atol=atol
        )
        digests = [None] * session.size
        dist.all_gather_object(digests, hashlib.sha256(mine.view(torch.uint8).numpy().tobytes()).hexdigest())
        assert len(set(digests)) == 1, kind


def gradients(parallel_of):
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))
    parallel = parallel_of(model)
    for step in range(3):
        generator = torch.Generator().manual_seed(100 * step + session.rank)
        model.zero_grad()
        parallel(torch.randn(16, 64, generator=generator)).square().mean().backward()
    return torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])


ours = gradients(lambda model: session.parallel(model, bucket_cap_mb=0.5))
if session.size > 1:
    theirs = gradients(nn.parallel.DistributedDataParallel)
    torch.testing.assert_close(ours, theirs)
    digests = [None] * session.size
    dist.all_gather_object(digests, hashlib.sha256(ours.numpy().tobytes()).hexdigest())
    assert len(set(digests)) == 1
session.barrier()
if session.rank == 0:
    print("found " + json.dumps(found), flush=True)
session.close()
session.close()
