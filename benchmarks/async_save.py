"""What a checkpoint costs the training: `save(...)` beside `save(..., wait=False)` beside none at all.

    python benchmarks/async_save.py [--ranks 2] [--rounds 4] [--steps 12] [--megabytes 100]

needs a Python with torch: this one, or the one that GANGLINE_TRAIN_PYTHON names. Rounds of three ways take
turns in the same processes, so that what else the machine does meets all alike: no save, one that is waited
for after the first step of the round, one behind the training there. Told are the time of the call, and what
the round took longer than one without a save, as a share of its time. The state is of parameters and an
optimizer's moments, so many megabytes together.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time

from local_ranks import rank_variables, run_ranks

WAYS = ("none", "waits", "behind")
LIMIT_S = 550


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a checkpoint")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4, help="of each way")
    parser.add_argument("--steps", type=int, default=12, help="of a round, which has one save")
    parser.add_argument("--megabytes", type=int, default=100, help="of state")
    options = parser.parse_args()
    if "RANK" in os.environ:
        rank_main(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        variables = rank_variables(options.ranks) | {"BENCHMARK_FOLDER": folder}
        sys.exit(run_ranks(options.ranks, variables, LIMIT_S))


def rank_main(options: argparse.Namespace) -> None:
    import torch

    import gangline.train

    with gangline.train.init() as session:
        width = 1024
        layers = max(1, round(options.megabytes * 1e6 / (3 * 4 * width * width)))
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
        parallel = session.parallel(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        checkpoints = session.checkpoints(os.environ["BENCHMARK_FOLDER"], keep=1)
        batch = torch.randn(256, width)
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        calls: dict[str, list[float]] = {way: [] for way in WAYS}
        number = 0
        for turn in range((options.rounds + 1) * len(WAYS)):
            way = WAYS[turn % len(WAYS)]
            session.barrier()
            began = time.perf_counter()
            for step in range(options.steps):
                optimizer.zero_grad()
                parallel(batch).square().mean().backward()
                optimizer.step()
                if step == 0 and way != "none":
                    number += 1
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    before = time.perf_counter()
                    checkpoints.save(number, state, wait=way == "waits")
                    calls[way].append(time.perf_counter() - before)
            checkpoints.wait()
            session.barrier()
            took[way].append(time.perf_counter() - began)
        if session.rank == 0:
            _tell(options, {way: times[1:] for way, times in took.items()}, calls)


def _tell(options: argparse.Namespace, took: dict[str, list[float]], calls: dict[str, list[float]]) -> None:
    none = statistics.median(took["none"])
    step_s = none / options.steps
    print(f"{options.ranks} ranks, {options.megabytes} MB of state, steps of {step_s * 1e3:.0f} ms")
    for way in WAYS[1:]:
        call = statistics.median(calls[way][1:])
        more = statistics.median(took[way]) - none
        print(
            f"{way:7} call {call * 1e3:6.0f} ms ({call / step_s:6.1%} of a step); a round of "
            f"{options.steps} steps {more * 1e3:6.0f} ms longer ({more / none:5.1%})"
        )


if __name__ == "__main__":
    main()
