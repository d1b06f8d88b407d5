"""Images/s of the benchmarks' training step beside plain DistributedDataParallel on the same network.

    python benchmarks/train_images.py [--models resnet50,vgg16,resnet18] [--ranks 1,2] [--steps 7]

needs a Python with torch: this one, or the one that GANGLINE_TRAIN_PYTHON names. Same network, batch, ranks
and threads. All ways take turns of one step each in the same processes, so that what else the machine does
meets them alike; a step takes as long as on its slowest rank; medians. `plain` has torch's defaults,
`plain, channels last` the memory layout that torch advises. The goal, 1.00 of `plain`, decides on the exit
code.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from local_ranks import rank_variables, run_ranks

RUN_LIMIT_S = 1500
GOAL = 1.00
CLASSES = 1001
WARMUP_STEPS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description="images/s of our training step against plain DDP")
    parser.add_argument("--models", default="resnet50,vgg16,resnet18")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--batch", type=int, default=8, help="images of each rank")
    parser.add_argument("--steps", type=int, default=7, help="of each way, after two that are not counted")
    options = parser.parse_args()
    if "RANK" in os.environ:
        sys.exit(rank_main(options))
    headings = ("network", "ranks", "ours", "plain", "ratio", "channels last", "ratio")
    print("{:<9} {:>5} {:>9} {:>9} {:>6} {:>14} {:>6}".format(*headings))
    sys.exit(max(start(int(ranks)) for ranks in options.ranks.split(",")))


def start(ranks: int) -> int:
    """Start this file as ranks and return the worst exit code."""
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    return run_ranks(ranks, rank_variables(ranks) | {"OMP_NUM_THREADS": str(threads)}, RUN_LIMIT_S)


def rank_main(options: argparse.Namespace) -> int:
    import gangline.train

    missed = 0
    with gangline.train.init() as session:
        for model in options.models.split(","):
            ours, plain, last = compare(model, session, options)
            missed |= ours / plain < GOAL
            if session.rank == 0:
                print(
                    f"{model:<9} {session.size:>5} {ours:>9.2f} {plain:>9.2f} {ours / plain:>6.3f} "
                    f"{last:>14.2f} {ours / last:>6.3f}",
                    flush=True,
                )
            gc.collect()
    return int(missed)


def compare(model: str, session: Any, options: argparse.Namespace) -> list[float]:
    """Return images/s of all ranks: ours, plain, plain with channels last."""
    import torch
    from plain_ddp import plain_step

    from gangline.bench.models import find
    from gangline.bench.training import StepSettings, TrainingStep, synthetic_batch

    torch.manual_seed(1234)
    settings = StepSettings(model, CLASSES, weight_decay=4e-5)
    batch = synthetic_batch(options.batch, find(model).image_size, CLASSES, session.device)
    contiguous = (batch[0].contiguous(), batch[1])
    ways: list[tuple[Callable[..., Any], Any]] = [
        (TrainingStep(settings, session), batch),
        (plain_step(model, CLASSES, session.device, channels_last=False), contiguous),
        (plain_step(model, CLASSES, session.device, channels_last=True), batch),
    ]
    times: list[list[float]] = [[] for _ in ways]
    for number in range(options.steps + WARMUP_STEPS):
        for way, (step, data) in enumerate(ways):
            took = timed(session, lambda step=step, data=data: step(*data))
            if number >= WARMUP_STEPS:
                times[way].append(took)
    return [session.size * options.batch / statistics.median(way) for way in times]


def timed(session: Any, call: Callable[[], Any]) -> float:
    """Return how long a call takes on the slowest rank. Unit: s."""
    import torch

    session.barrier()
    begin = time.perf_counter()
    call()
    if session.device.type == "cuda":
        torch.cuda.synchronize()
    took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64, device=session.device)
    if session.size > 1:
        torch.distributed.all_reduce(took, op=torch.distributed.ReduceOp.MAX)
    return float(took)


if __name__ == "__main__":
    main()
