"""What the pictures show at work: the network of examples/01-digits, which tells its loss twice a second.

`python pictured_training.py EXAMPLE LEARNING_RATE STEPS`, on any number of ranks of MPI.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

EXAMPLE, LEARNING_RATE, STEPS = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
TOLD_EVERY_S = 0.5
sys.path.insert(0, str(EXAMPLE))
import train as digits  # noqa: E402


def tell(step: int, steps_a_second: float, loss: float, ranks: int) -> None:
    """Write a record of docs/reference/train-records.md, and a line to read."""
    rate = steps_a_second * digits.BATCH_SIZE
    record = {"kind": "progress", "step": step, "steps": STEPS, "loss": loss, "rate": rate, "unit": "images"}
    record |= {"eta_s": (STEPS - step) / steps_a_second, "ranks": ranks}
    print("@gangline " + json.dumps(record), flush=True)
    print(f"step {step}  loss {loss:.4f}  {rate:,.0f} images/s", flush=True)


def main() -> None:
    """Train with plain gradient descent."""
    comm = MPI.COMM_WORLD
    images, labels, _, _ = digits.load(EXAMPLE / "digits.csv.gz")
    random = np.random.default_rng(1)  # the same start and batches on every rank
    flat = random.normal(scale=0.15, size=sum(int(np.prod(shape)) for shape in digits.SHAPES))
    total = np.empty(flat.size + 1)  # the gradients, then the loss
    parameters, gradients = digits.split(flat), digits.split(total[:-1])
    told, told_step = time.monotonic(), 0
    for step in range(1, STEPS + 1):
        batch = random.integers(len(images), size=digits.BATCH_SIZE)
        shard = batch[comm.rank :: comm.size]
        total[-1] = digits.backward(parameters, gradients, images[shard], labels[shard], len(batch))
        comm.Allreduce(MPI.IN_PLACE, total)
        flat -= LEARNING_RATE * total[:-1]
        now = time.monotonic()
        if comm.rank == 0 and now - told >= TOLD_EVERY_S:
            tell(step, (step - told_step) / (now - told), float(total[-1]), comm.size)
            told, told_step = now, step


if __name__ == "__main__":
    main()
