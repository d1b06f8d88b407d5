"""`horovod.torch` against torch's own ways, between ranks of this machine.

    python benchmarks/horovod_step.py [--ranks 2] [--rounds 31] [--image-steps 6]

needs a Python with torch: this one, or the one that GANGLINE_TRAIN_PYTHON names. All ways take turns in the
same processes, one thread each; times are of the slowest rank, medians over the rounds.

* A step of ResNet-50 whose computing is left out: 161 gradients are there at once, are averaged, and SGD
  takes a step; with `hvd.DistributedOptimizer`, and with DistributedDataParallel.
* 1,000 named tensors, submitted one by one, against one all-reduce of as many bytes.
* Images a second of ResNet-50 with both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local_ranks import SOURCES, rank_variables, run_ranks

HOROVOD_SOURCES = Path(__file__).resolve().parents[1] / "horovod" / "src"
RANKS_LIMIT_S = 1500
NAMED_TENSORS = 1000
NAMED_BYTES = (1 << 10, 4 << 10, 16 << 10, 64 << 10)


def main() -> None:
    parser = argparse.ArgumentParser(description="horovod.torch against torch.distributed")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=31, help="of each way")
    parser.add_argument("--image-steps", type=int, default=6, help="of each way; 0 leaves images out")
    parser.add_argument("--image-batch", type=int, default=4, help="images of each rank")
    options = parser.parse_args()
    if "RANK" in os.environ:
        rank_main(options)
        return
    overlay = os.environ.get("GANGLINE_HOROVOD_OVERLAY")
    sources = [SOURCES, HOROVOD_SOURCES, *([Path(overlay)] if overlay else [])]
    sys.exit(run_ranks(options.ranks, rank_variables(options.ranks, sources=sources), RANKS_LIMIT_S))


def rank_main(options: argparse.Namespace) -> None:
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    say = print if hvd.rank() == 0 else lambda *_, **__: None
    say(f"{hvd.size()} ranks, torch {torch.__version__}, backend {torch.distributed.get_backend()}")
    stubbed_steps(options.rounds, say)
    named_tensors(options.rounds, say)
    if options.image_steps:
        images(options.image_steps, options.image_batch, say)


def in_turns(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Return milliseconds of the slowest rank for every way and round, after three of each.

    Under ``NAME, processor`` stands the processor's time, which other work on the machine hardly changes.
    """
    import torch
    import torch.distributed as dist

    times: dict[str, list[float]] = {name: [] for name in ways}
    times |= {f"{name}, processor": [] for name in ways}
    for number in range(-3, rounds):
        for name, way in list(ways.items())[:: 1 if number % 2 else -1]:
            dist.barrier()
            began, used = time.perf_counter(), time.process_time()
            way()
            took = torch.tensor([time.perf_counter() - began, time.process_time() - used]) * 1000
            dist.all_reduce(took, dist.ReduceOp.MAX)
            if number >= 0:
                times[name].append(took[0].item())
                times[f"{name}, processor"].append(took[1].item())
    return times


def stubbed_steps(rounds: int, say: Callable[..., None]) -> None:
    import torch

    import horovod.torch as hvd
    from gangline.bench.models import build

    class Gradients(torch.autograd.Function):
        """Computes nothing: gives each parameter the gradient that was prepared for it."""

        @staticmethod
        def forward(ctx: Any, prepared: list[Any], *parameters: Any) -> Any:
            ctx.prepared = prepared
            return torch.zeros((), requires_grad=True)

        @staticmethod
        def backward(ctx: Any, _: Any) -> Any:
            return None, *ctx.prepared

    class Stub(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = build("resnet50", 1000)
            parameters = [torch.nn.Parameter(one.detach()) for one in whole.parameters()]
            self.all = torch.nn.ParameterList(parameters)
            self.prepared = [torch.full_like(one, 1e-3) for one in self.all]

        def forward(self, _: Any) -> Any:
            return Gradients.apply(self.prepared, *self.all)

    def step_of(network: Any, optimizer: Any) -> Callable[[], None]:
        nothing = torch.zeros(1)

        def step() -> None:
            optimizer.zero_grad()
            network(nothing).backward()
            optimizer.step()

        return step

    ours, plain = Stub(), Stub()
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=ours.named_parameters())
    wrapped = torch.nn.parallel.DistributedDataParallel(plain)
    ways = {
        "hvd": step_of(ours, optimizer),
        "ddp": step_of(wrapped, torch.optim.SGD(plain.parameters(), lr=0.01)),
    }
    times = in_turns(ways, rounds)
    more = [a - b for a, b in zip(times["hvd"], times["ddp"], strict=True)]
    say(
        f"step of {len(ours.prepared)} tensors: horovod {statistics.median(times['hvd']):.1f} ms, "
        f"DDP {statistics.median(times['ddp']):.1f} ms, difference {statistics.median(more):+.2f} ms; "
        f"processor {statistics.median(times['hvd, processor']):.1f} "
        f"and {statistics.median(times['ddp, processor']):.1f} ms"
    )


def named_tensors(rounds: int, say: Callable[..., None]) -> None:
    import torch
    import torch.distributed as dist

    import horovod.torch as hvd

    for size in NAMED_BYTES:
        tensors = [torch.ones(size // 4) for _ in range(NAMED_TENSORS)]
        flat = torch.ones(NAMED_TENSORS * size // 4)

        def named(tensors: list[Any] = tensors) -> None:
            handles = [
                hvd.allreduce_async_(one, name=f"tensor.{number}", op=hvd.Sum)
                for number, one in enumerate(tensors)
            ]
            for handle in handles:
                hvd.synchronize(handle)

        def at_once(flat: Any = flat) -> None:
            dist.all_reduce(flat)

        times = in_turns({"named": named, "flat": at_once}, rounds)
        ours, bare = statistics.median(times["named"]), statistics.median(times["flat"])
        used, bare_used = (statistics.median(times[f"{name}, processor"]) for name in ("named", "flat"))
        say(
            f"{NAMED_TENSORS} named tensors of {size >> 10} KiB: {ours:.1f} ms, "
            f"one all-reduce {bare:.1f} ms, ratio {ours / bare:.2f}; "
            f"processor {used:.1f} and {bare_used:.1f} ms"
        )
    say(f"as many calls of two empty functions: {empty_calls(tensors):.2f} ms")


def empty_calls(tensors: list[Any]) -> float:
    """Return milliseconds of a program that only calls: less is not to be had in Python."""

    def submit(tensor: Any, name: str, op: int) -> None:
        """Do nothing."""

    def wait(handle: None) -> None:
        """Do nothing."""

    took = []
    for _ in range(31):
        began = time.perf_counter()
        handles = [submit(one, name=f"tensor.{number}", op=1) for number, one in enumerate(tensors)]
        for handle in handles:
            wait(handle)
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def images(steps: int, batch: int, say: Callable[..., None]) -> None:
    import torch
    from plain_ddp import plain_step

    import horovod.torch as hvd
    from gangline.bench.models import build

    pictures = torch.randn(batch, 3, 224, 224)
    labels = torch.randint(0, 1000, (batch,))
    plain = plain_step("resnet50", 1000, torch.device("cpu"), channels_last=False)
    network = build("resnet50", 1000)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.005, weight_decay=4e-5)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=network.named_parameters())
    loss_function = torch.nn.CrossEntropyLoss()

    def ours() -> None:
        optimizer.zero_grad()
        loss_function(network(pictures), labels).backward()
        optimizer.step()

    times = in_turns({"hvd": ours, "ddp": lambda: plain(pictures, labels)}, steps)
    rates = {name: 1000 * batch * hvd.size() / statistics.median(times[name]) for name in ("hvd", "ddp")}
    say(
        f"ResNet-50: horovod {rates['hvd']:.2f} images/s, DDP {rates['ddp']:.2f} images/s, "
        f"ratio {rates['hvd'] / rates['ddp']:.3f}"
    )


if __name__ == "__main__":
    main()
