"""One rank that is told collectives line by line, does each over both backends, and says how they compare.

A line in is a JSON object, `collectives_cases.py` makes them; a line out is ``ok`` or what differs.
"""

import hashlib
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from gangline.train.collectives import memory, nodes

memory.PIECE_BYTES = memory.PIECE_BYTES_MIN  # several pieces from little data
if "two-nodes" in sys.argv:  # each half of the ranks sees a memory of its own
    nodes.memory_domain = lambda: f"half-{int(os.environ['RANK']) * 2 // int(os.environ['WORLD_SIZE'])}"
dist.init_process_group("gangline", timeout=timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
truth = dist.new_group(backend="gloo")
groups = {tuple(range(size)): (dist.group.WORLD, truth)}


def group_of(ranks):
    """Return ours and gloo's group of some ranks; all ranks make it."""
    if ranks not in groups:
        groups[ranks] = tuple(dist.new_group(list(ranks), backend=name) for name in ("gangline", "gloo"))
    return groups[ranks]


def numbers(case, owner, shape, *more):
    """Return what a rank brings; every rank can make it."""
    dtype = getattr(torch, case["dtype"])
    generator = torch.Generator().manual_seed(hash((case["seed"], owner, *more)) % 2**31)
    if dtype.is_complex:
        found = torch.randn(shape, generator=generator, dtype=dtype)
    elif dtype.is_floating_point:
        found = torch.randn(shape, generator=generator).to(dtype)
    else:
        found = torch.randint(
            0 if dtype in (torch.uint8, torch.bool) else -3, 2, shape, generator=generator
        ).to(dtype)
    return strided(found) if case["strided"] else found


def strided(tensor):
    """Return the same numbers, not next to each other in memory."""
    wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]


def empty(case, shape):
    found = torch.zeros(shape, dtype=getattr(torch, case["dtype"]))
    return strided(found) if case["strided"] else found


def finish(work):
    if work is not None:
        work.wait()


def do(case, group, members, is_gloo):
    """Do one collective; return this rank's results and nothing where it has none."""
    own, count = members.index(rank), len(members)
    op = getattr(dist.ReduceOp, case["op"])
    is_average = is_gloo and case["op"] == "AVG" and "reduce" in case["kind"]
    if is_average:
        op = dist.ReduceOp.SUM
    shape, root, kind = case["shape"], members[case["root"] % count], case["kind"]
    options = {"group": group, "async_op": case["async"]}
    mine = numbers(case, own, shape)
    if kind == "all_reduce":
        finish(dist.all_reduce(mine, op, **options))
        found = [mine]
    elif kind == "all_reduce_coalesced":
        shapes = [shape, [3], [0, 2], [40000], shape, [5], *[[n % 7] for n in range(1500)]]
        found = [numbers(case, own, one, number) for number, one in enumerate(shapes)]
        if is_gloo:
            for one in found:
                dist.all_reduce(one, op, group=group)
        else:
            how = dist.AllreduceOptions()
            how.reduceOp, how.asyncOp = op, case["async"]
            group.allreduce_coalesced(found, how).wait()
    elif kind == "reduce":
        finish(dist.reduce(mine, root, op, **options))
        found = [mine] if rank == root else []
    elif kind == "broadcast":
        finish(dist.broadcast(mine, root, **options))
        found = [mine]
    elif kind == "all_gather":
        found = [empty(case, shape) for _ in members]
        finish(dist.all_gather(found, mine, **options))
    elif kind == "all_gather_into_tensor":
        found = [torch.zeros([count * shape[0], *shape[1:]], dtype=mine.dtype)]
        finish(dist.all_gather_into_tensor(found[0], mine.contiguous(), **options))
    elif kind == "reduce_scatter":
        found = [empty(case, shape)]
        parts = [numbers(case, own, shape, to) for to in range(count)]
        finish(dist.reduce_scatter(found[0], parts, op, **options))
    elif kind == "reduce_scatter_tensor":
        found = [torch.zeros(shape, dtype=mine.dtype)]
        whole = numbers(case, own, [count * shape[0], *shape[1:]]).contiguous()
        finish(dist.reduce_scatter_tensor(found[0], whole, op, **options))
    elif kind == "all_to_all_single":
        rows = [[(case["seed"] + 3 * a + 5 * b) % 4 for b in range(count)] for a in range(count)]
        wanted = [rows[other][own] for other in range(count)]
        whole = numbers(case, own, [sum(rows[own]), *shape[1:]]).contiguous()
        found = [torch.zeros([sum(wanted), *shape[1:]], dtype=mine.dtype)]
        finish(dist.all_to_all_single(found[0], whole, wanted, rows[own], **options))
    elif kind == "gather":
        found = [empty(case, shape) for _ in members] if rank == root else None
        finish(dist.gather(mine, found, root, **options))
        found = found or []
    elif kind == "scatter":
        found = [empty(case, shape)]
        parts = [numbers(case, own, shape, to) for to in range(count)] if rank == root else None
        finish(dist.scatter(found[0], parts, root, **options))
    else:
        raise ValueError(kind)
    if is_average and found and found[0].numel():
        for one in found:
            one.copy_(
                one / count if one.is_floating_point() else torch.div(one, count, rounding_mode="trunc")
            )
    return found


TOLERANCES = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-5, "float64": 1e-12, "complex64": 1e-5}


def compare(case):
    members = tuple(case["group"])
    ours, theirs = group_of(members)
    if rank not in members:
        return "ok"
    found = do(case, ours, members, False)
    # gloo takes a tensor's memory as it lies, whatever its strides
    want = do(case | {"strided": False}, theirs, members, True)
    near = TOLERANCES.get(case["dtype"], 0)
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, rtol=near, atol=near, equal_nan=True)
    if case["kind"] == "all_reduce":
        raw = torch.cat([found[0].reshape(-1)]).view(torch.uint8).numpy().tobytes()
        digests = [None] * len(members)
        dist.all_gather_object(digests, hashlib.sha256(raw).hexdigest(), group=theirs)
        assert len(set(digests)) == 1, "the ranks' bits differ"
    return "ok"


print("ready", flush=True)
for line in sys.stdin:
    try:
        print(compare(json.loads(line)), flush=True)
    except Exception as error:
        print(f"rank {rank}: {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        os._exit(1)
dist.destroy_process_group()
