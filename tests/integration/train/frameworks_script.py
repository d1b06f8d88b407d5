"""What builds on torch.distributed, on the backend "gangline"; the first word says what."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import gangline.train
from gangline.train.collectives import memory, nodes

how = sys.argv[1]
if "two-nodes" in sys.argv:  # each half of the ranks sees a memory of its own
    nodes.memory_domain = lambda: f"half-{int(os.environ['RANK']) * 2 // int(os.environ['WORLD_SIZE'])}"
if how == "full":
    from pathlib import Path

    nodes.FOLDER = memory.FOLDER = Path(sys.argv[2])
dist.init_process_group("gangline", timeout=timedelta(seconds=3 if how == "late" else 60))
rank, size = dist.get_rank(), dist.get_world_size()


def small_model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def batch(step, owner):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + owner))


def trained(model, optimizer, steps=3):
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step, rank)).square().mean().backward()
        optimizer.step()


def alone(steps=3):
    """Return the parameters that one process gets from the batches of all ranks."""
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        sum(model(batch(step, owner)).square().mean() / size for owner in range(size)).backward()
        optimizer.step()
    return [one.detach() for one in model.parameters()]


def same_as_alone(parameters):
    torch.testing.assert_close([one.detach() for one in parameters], alone(), rtol=1e-4, atol=1e-5)


if how == "ddp":
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = nn.parallel.DistributedDataParallel(small_model())
    trained(model, torch.optim.Adam(model.parameters(), lr=0.01))
    same_as_alone(model.parameters())
    seen = []
    model = nn.parallel.DistributedDataParallel(small_model())
    model.register_comm_hook(None, lambda state, bucket: seen.append(1) or bf16_compress_hook(state, bucket))
    trained(model, torch.optim.Adam(model.parameters(), lr=0.01))
    assert seen, "the user's hook was not called"
elif how == "fsdp":
    from torch.distributed.fsdp import fully_shard

    model = small_model()
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    trained(model, torch.optim.Adam(model.parameters(), lr=0.01))
    same_as_alone(one.full_tensor() for one in model.parameters())
elif how == "zero":
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(small_model())
    trained(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01))
    same_as_alone(model.parameters())
elif how == "dtensor":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("a", "b"))
    whole = torch.arange(64.0).view(8, 8)
    spread = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    torch.testing.assert_close(spread.full_tensor(), whole)
    product = (spread @ distribute_tensor(whole, mesh, [Replicate(), Shard(0)])).full_tensor()
    torch.testing.assert_close(product, whole @ whole)
    torch.testing.assert_close(spread.redistribute(mesh, [Replicate(), Shard(0)]).full_tensor(), whole)
elif how == "compile":
    import torch.distributed._functional_collectives as funcol

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(tensor):
        total = funcol.all_reduce(tensor * 2, "sum", dist.group.WORLD)
        return funcol.all_gather_tensor(total + 1, 0, dist.group.WORLD)

    found = step(torch.full((3,), rank + 1.0))
    torch.testing.assert_close(found, torch.full((3 * size,), size * (size + 1) + 1.0))
    model = torch.compile(nn.parallel.DistributedDataParallel(small_model()), backend="aot_eager")
    trained(model, torch.optim.Adam(model.parameters(), lr=0.01))
    same_as_alone(model.parameters())
elif how == "others":
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": one} for one in range(size)]
    objects = ["a", rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects)
    assert objects == ["a", 0]
    sparse = torch.sparse_coo_tensor([[rank]], [1.0], (size,))
    dist.all_reduce(sparse)
    torch.testing.assert_close(sparse.to_dense(), torch.ones(size))
    got, after, before = torch.zeros(5), (rank + 1) % size, (rank - 1) % size
    sent = torch.full((5,), float(rank))
    calls = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    torch.testing.assert_close(got, torch.full((5,), float(before)))
    works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(20)]
    assert [float(work.result()[0][0]) for work in works] == [size] * 20
    assert dist.get_backend() == "gangline"
elif how in ("lost", "mismatch", "late"):
    assert how != "lost" or dist.all_reduce(torch.ones(1)) is None
    try:
        for step in range(100):
            if how == "lost" and rank == size - 1 and step == 5:
                os.kill(os.getpid(), 9)
            if how == "late" and rank == size - 1:
                time.sleep(6)
            dist.all_reduce(torch.ones(1000 + (rank == 1) * (how == "mismatch")))
    except (gangline.train.PeerLostError, memory.MismatchError) as error:
        print(
            f"error at {time.time()}: {type(error).__name__} {getattr(error, 'ranks', ())} {error}",
            flush=True,
        )
        os._exit(0)
elif how == "full":
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    assert tensor[0] == size
dist.destroy_process_group()
print("right", flush=True)
