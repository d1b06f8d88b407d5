"""Run in every rank: threads that submit names of their own and one name together, whose shapes change.

Arguments: a seed, and rounds of each thread.
"""

from __future__ import annotations

import random
import sys
import threading

import torch

import horovod.torch as hvd

SEED, ROUNDS = int(sys.argv[1]), int(sys.argv[2])
THREADS = 3
SHAPES = ((3,), (5,), (2, 4), (70_000,))
OPS = {"Sum": hvd.Sum, "Max": hvd.Max}
done, wrong = {"right": 0, "refused": 0, "different": 0}, []


def reduce(name: str, shape: tuple[int, ...], op: str, value: float) -> None:
    """Reduce a tensor in place, until the name is not in flight elsewhere."""
    while True:
        tensor = torch.full(shape, value + hvd.rank())
        try:
            handle = hvd.allreduce_async_(tensor, name=name, op=OPS[op])
            break
        except ValueError:
            done["refused"] += 1
    try:
        result = hvd.synchronize(handle)
    except hvd.HorovodInternalError:
        done["different"] += 1
        return
    size = hvd.size()
    # Of two threads of a rank the others may have met either one: then the values are of both.
    right = {"Sum": {v * size + size * (size - 1) / 2 for v in (value,)}, "Max": {value + size - 1}}[op]
    if name.startswith("own") and set(result.view(-1).tolist()) != right:
        wrong.append((name, shape, op, result.view(-1)[:4].tolist(), right))
    if result.shape != torch.Size(shape) or len(result.unique()) != 1:
        wrong.append((name, shape, op, result.unique()[:4].tolist()))
    done["right"] += 1


def submit(number: int) -> None:
    choose = random.Random(SEED * 100 + number)  # the same on all ranks
    for turn in range(ROUNDS):
        shape, op = choose.choice(SHAPES), choose.choice([*OPS])
        reduce(f"own {number} {turn % 4}", shape, op, float(number + turn % 7))
        # The same thread of every rank mostly has the same shape twice, so that the short way is gone.
        reduce("shared", SHAPES[number if turn % 3 else choose.randrange(3)], "Sum", float(number))


if __name__ == "__main__":
    hvd.init()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=submit, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hvd.barrier()
    assert not wrong, wrong[:5]
    sys.stdout.write(f"all right {done}\n")
