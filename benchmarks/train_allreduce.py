"""The gradient all-reduce of `gangline.train` between ranks of one node, against torch's own over gloo.

    python benchmarks/train_allreduce.py [--ranks 2] [--rounds 15] [--vgg-steps 4]

needs a Python with torch: this one, or the one that GANGLINE_TRAIN_PYTHON names. The ranks are processes of
this machine with one thread each. Both ways take turns in the same processes, so that what else the machine
does meets both alike. Algorithm bandwidth is the size of the tensor divided by the time of the slowest rank;
medians. The last lines train VGG16 (138,357,544 parameters, synthetic images) with DistributedDataParallel
both ways, in turns of one step. The ranks' results are compared bit by bit.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES_MB = (1, 25, 100)
SOURCES = Path(__file__).resolve().parents[1] / "src"
RANKS_LIMIT_S = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description="all-reduce of gradients: shared memory against gloo")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15, help="of each size and way")
    parser.add_argument("--vgg-steps", type=int, default=4, help="of each way; 0 leaves VGG16 out")
    parser.add_argument("--vgg-batch", type=int, default=2, help="images of each rank")
    options = parser.parse_args()
    if "RANK" in os.environ:
        rank_main(options)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    python = os.environ.get("GANGLINE_TRAIN_PYTHON", sys.executable)
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(options.ranks)}
    variables |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCES)}
    ranks = [
        subprocess.Popen([python, *sys.argv], env=os.environ | variables | {"RANK": str(rank)})
        for rank in range(options.ranks)
    ]
    try:
        codes = [rank.wait(timeout=RANKS_LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    sys.exit(max(codes))


def rank_main(options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    import gangline.train

    session = gangline.train.init()
    gradients = session.gradients
    if gradients is None:
        sys.exit(f"no shared memory here: {session.no_shared_memory}")
    say = print if session.rank == 0 else lambda *_, **__: None
    say(f"{session.size} ranks, torch {torch.__version__}, one thread each")
    say(f"{'size':>7} {'gloo':>12} {'shared memory':>16} {'ratio':>7}")

    def gloo(tensor: Any) -> None:
        dist.all_reduce(tensor)
        tensor.div_(session.size)

    for size in SIZES_MB:
        elements = size * 1_000_000 // 4
        tensors = [
            torch.randn(elements, generator=torch.Generator().manual_seed(session.rank)) for _ in range(2)
        ]
        times = compare([(gloo, tensors[0]), (gradients.average, tensors[1])], options.rounds)
        check_same(tensors[1], session.size)
        ours, theirs = size / 1e3 / times[1], size / 1e3 / times[0]
        say(f"{size:4} MB {theirs:7.2f} GB/s {ours:11.2f} GB/s {ours / theirs:6.2f}x", flush=True)
    if options.vgg_steps:
        train_vgg(session, options, say)
    session.close()


def compare(ways: list[tuple[Callable[[Any], None], Any]], rounds: int) -> list[float]:
    """Return the median time of each way in seconds, of the slowest rank, the ways taking turns."""
    import torch
    import torch.distributed as dist

    found: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + 2):
        for way, (call, argument) in enumerate(ways):
            dist.barrier()
            start = time.perf_counter()
            call(argument)
            took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            if number >= 2:  # the first two rounds touch the memory
                found[way].append(took.item())
    return [statistics.median(times) for times in found]


def check_same(tensor: Any, size: int) -> None:
    import torch.distributed as dist

    digests = [None] * size
    dist.all_gather_object(digests, hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest())
    if len(set(digests)) != 1:
        sys.exit("the ranks' results differ")


def vgg16() -> Any:
    """Return VGG16 for images of 224 x 224 (Simonyan and Zisserman 2014, configuration D)."""
    from torch import nn

    layers: list[Any] = []
    channels = 3
    for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if width == 0:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
        channels = width
    head = [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, *head, nn.Linear(4096, 1000))


def train_vgg(session: Any, options: argparse.Namespace, say: Callable[..., None]) -> None:
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    model = vgg16()
    images = torch.randn(options.vgg_batch, 3, 224, 224)
    labels = torch.randint(1000, (options.vgg_batch,))
    ways = [DistributedDataParallel(model, gradient_as_bucket_view=True), session.parallel(model)]

    def step(parallel: Any) -> None:
        model.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(parallel(images), labels).backward()

    times = compare([(step, way) for way in ways], options.vgg_steps)
    check_same(model[0].weight.grad, session.size)
    batch = options.vgg_batch * session.size
    theirs, ours = batch / times[0], batch / times[1]
    say(f"VGG16, batch {options.vgg_batch} a rank, images/s: gloo {theirs:.2f}, shared memory {ours:.2f}")
    say(f"  {ours / theirs:.2f}x ({times[0]:.2f} s against {times[1]:.2f} s a step)")


if __name__ == "__main__":
    main()
