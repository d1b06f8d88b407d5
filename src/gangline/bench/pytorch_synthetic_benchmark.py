"""Horovod's ``pytorch_synthetic_benchmark.py`` on DistributedDataParallel: the same flags, the same lines.

Rank 0 prints. The speed of an iteration is that of rank 0; ``+-`` is 1.96 standard deviations over the
iterations; the total is rank 0's figures times the number of ranks, as there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.bench import entry, limits, models
from gangline.bench.figures import confidence
from gangline.errors import UserError
from gangline.train import init

if TYPE_CHECKING:
    from gangline.train import Session

CLASSES = 1000
LEARNING_RATE = 0.01

TORCHVISION_NAMES = {
    "resnet50": "resnet50_v1.5",
    "resnet101": "resnet101_v1.5",
    "resnet152": "resnet152_v1.5",
    "mobilenet_v2": "mobilenet",
}
"""Names of torchvision's networks where ours differ."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of upstream's flags, and ``--json``."""
    result = argparse.ArgumentParser(
        description="Images/s of a network on random data, over all ranks.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    result.add_argument("--fp16-allreduce", action="store_true", help="send gradients in fp16")
    result.add_argument("--model", default="resnet50", help="a network by torchvision's name")
    result.add_argument("--batch-size", type=int, default=32, help="images for each rank")
    result.add_argument("--num-warmup-batches", type=int, default=10, help="batches before the timing")
    result.add_argument("--num-batches-per-iter", type=int, default=10, help="batches of an iteration")
    result.add_argument("--num-iters", type=int, default=10, help="iterations that are timed")
    result.add_argument("--no-cuda", action="store_true", help="compute on the CPU")
    result.add_argument("--use-adasum", action="store_true", help="no meaning here: gradients are averaged")
    result.add_argument("--json", default="", metavar="FILE", help="write rank 0's figures there")
    return result


def main(words: Sequence[str]) -> None:
    """Run the benchmark that a command line asks for."""
    asked = parser().parse_args(words)
    bounds = limits.from_environment()
    for name in ("batch_size", "num_batches_per_iter", "num_iters"):
        if getattr(asked, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1 (found `{getattr(asked, name)}`)")
    model = bounds.model(asked.model)
    network = TORCHVISION_NAMES.get(model, model)
    models.find(network)
    asked.batch_size = bounds.count("batch_size", asked.batch_size)
    asked.num_iters = bounds.count("num_iters", asked.num_iters)
    asked.num_warmup_batches = bounds.count("num_warmup_batches", asked.num_warmup_batches)
    asked.num_batches_per_iter = bounds.count("num_batches", asked.num_batches_per_iter)
    entry.check_writable(asked.json)
    entry.require("torch")
    with init(backend="gangline" if asked.no_cuda else "auto") as session:
        _run(network, model, asked, bounds, session)


def _run(network: str, model: str, asked: Any, bounds: limits.Limits, place: Session) -> None:
    if place.rank == 0:
        for line in _header(model, asked, bounds, place):
            entry.say(line)
    speeds = _measure(network, asked, place)
    if place.rank == 0:
        for line in summary_lines(speeds, place.size, _kind(place)):
            entry.say(line)
        if limited := bounds.line():
            entry.say(limited)
        entry.write_result(asked.json, _result(model, asked, bounds, place, speeds))


def _kind(place: Session) -> str:
    return "GPU" if place.device.type == "cuda" else "CPU"


def _header(model: str, asked: Any, bounds: limits.Limits, place: Session) -> Iterator[str]:
    if asked.use_adasum:
        yield "Flags without a meaning on torch: --use-adasum"
    if limited := bounds.line():
        yield limited
    yield f"Model: {model}"
    yield f"Batch size: {asked.batch_size}"
    yield f"Number of {_kind(place)}s: {place.size}"


def iteration_line(index: int, speed: float, kind: str) -> str:
    """Return the line of one iteration, which counts from 0; ``kind``: GPU or CPU."""
    return f"Iter #{index}: {speed:.1f} img/sec per {kind}"


def summary_lines(speeds: Sequence[float], ranks: int, kind: str) -> list[str]:
    """Return the closing lines for rank 0's speeds. Unit: images/s."""
    mean, spread = confidence(speeds)
    return [
        f"Img/sec per {kind}: {mean:.1f} +-{spread:.1f}",
        f"Total img/sec on {ranks} {kind}(s): {ranks * mean:.1f} +-{ranks * spread:.1f}",
    ]


def _measure(network: str, asked: Any, place: Session) -> list[float]:
    import torch

    from gangline.bench.training import StepSettings, TrainingStep, synthetic_batch

    step = TrainingStep(
        StepSettings(
            network, CLASSES, learning_rate=LEARNING_RATE * place.size, half_gradients=asked.fp16_allreduce
        ),
        place,
        asked.num_warmup_batches + asked.num_iters * asked.num_batches_per_iter,
    )
    size = models.find(network).image_size
    images, labels = synthetic_batch(asked.batch_size, size, CLASSES, place.device, 1234 + place.rank)

    def timed(batches: int) -> float:
        begin = time.perf_counter()
        for _ in range(batches):
            step(images, labels)
        if place.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    if place.rank == 0:
        entry.say("Running warmup...")
    timed(asked.num_warmup_batches)
    if place.rank == 0:
        entry.say("Running benchmark...")
    speeds = []
    for index in range(asked.num_iters):
        batches = asked.num_batches_per_iter
        speeds.append(asked.batch_size * batches / timed(batches))
        if place.rank == 0:
            entry.say(iteration_line(index, speeds[-1], _kind(place)))
    return speeds


def _result(
    model: str, asked: Any, bounds: limits.Limits, place: Session, speeds: Sequence[float]
) -> dict[str, Any]:
    mean, spread = confidence(speeds)
    return {
        "program": "pytorch_synthetic_benchmark",
        "model": model,
        "mode": "training",
        "batch_size": asked.batch_size,
        "ranks": place.size,
        "steps": asked.num_iters * asked.num_batches_per_iter,
        "device": _kind(place).lower(),
        "precision": "fp32",
        "data": "synthetic",
        "images_per_s": place.size * mean,
        "images_per_s_per_rank": mean,
        "uncertainty": spread,
        "limited": bounds.record(),
        "machine": entry.machine(),
    }


if __name__ == "__main__":
    entry.run(main)
