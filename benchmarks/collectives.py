"""The backend "gangline" of torch.distributed beside gloo: all-reduce and reduce-scatter, and a training.

    python benchmarks/collectives.py [--ranks 2] [--rounds 15] [--vgg-steps 4] [--two-nodes]

needs a Python with torch: this one, or the one that GANGLINE_TRAIN_PYTHON names. The ranks are processes of
this machine with one thread each. Both ways take turns in the same processes, so that what else the machine
does meets both alike. Algorithm bandwidth is the size of the tensor divided by the time of the slowest rank;
medians. The last lines train VGG16 (138,357,544 parameters, synthetic images) with DistributedDataParallel
both ways, in turns of one step. The ranks' results are compared bit by bit.

With --two-nodes, as root, half of the ranks each run in a network namespace with a /dev/shm of its own, and
1 Gbit/s lies between the two.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from local_ranks import rank_command, rank_variables, wait_for

SIZES_MB = (1, 5, 25, 100)
RANKS_LIMIT_S = 1500
RATE = "1gbit"


def main() -> None:
    parser = argparse.ArgumentParser(description="collectives: gangline against gloo")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15, help="of each size and way")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES_MB, help="in MB")
    parser.add_argument("--vgg-steps", type=int, default=0, help="of each way; 0 leaves VGG16 out")
    parser.add_argument("--vgg-batch", type=int, default=2, help="images of each rank")
    parser.add_argument("--two-nodes", action="store_true", help="with 1 Gbit/s between them; needs root")
    options = parser.parse_args()
    if "RANK" in os.environ:
        rank_main(options)
        return
    with ExitStack() as stack:
        hosts = stack.enter_context(two_nodes()) if options.two_nodes else [([], "127.0.0.1", "lo")]
        variables = rank_variables(options.ranks, hosts[0][1])
        each = options.ranks // len(hosts)
        processes = []
        for number, (way, _, interface) in enumerate(hosts):
            ranks = range(number * each, number * each + each)
            line = shlex.join(rank_command())
            script = " & ".join(f"RANK={rank} {line}" for rank in ranks) + " & wait"
            if way:
                script = f"mount -t tmpfs none /dev/shm; hostname node-{number}; {script}"
            environment = variables | {"GLOO_SOCKET_IFNAME": interface}
            processes.append(subprocess.Popen([*way, "sh", "-c", script], env=environment))
        wait_for(processes, RANKS_LIMIT_S)


@contextmanager
def two_nodes() -> Iterator[list[tuple[list[str], str, str]]]:
    """Make two network namespaces and a link; yield how to run in each, its address, its interface."""

    def do(line: str, *, check: bool = True) -> None:
        subprocess.run(line.split(), check=check)

    names = [f"gl-bench-{os.getpid()}-{number}" for number in range(2)]
    try:
        for name in names:
            do(f"ip netns add {name}")
            do(f"ip -n {name} link set lo up")
        do(f"ip -n {names[0]} link add wire type veth peer name wire netns {names[1]}")
        for number, name in enumerate(names):
            do(f"ip -n {name} addr add 10.213.7.{number + 1}/24 dev wire")
            do(f"ip -n {name} link set wire up")
            do(f"tc -n {name} qdisc add dev wire root tbf rate {RATE} burst 128kb latency 100ms")
        yield [
            (["unshare", "--uts", "ip", "netns", "exec", name], f"10.213.7.{number + 1}", "wire")
            for number, name in enumerate(names)
        ]
    finally:
        for name in names:
            do(f"ip netns delete {name}", check=False)


def rank_main(options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    import gangline.train  # noqa: F401 - registers the backend

    dist.init_process_group("gangline")
    rank, size = dist.get_rank(), dist.get_world_size()
    ways = [dist.new_group(backend="gloo"), dist.group.WORLD]
    if why := ways[1].no_shared_memory:
        sys.exit(f"no shared memory here: {why}")
    say = print if rank == 0 else lambda *_, **__: None
    say(f"{size} ranks{' on two nodes' if options.two_nodes else ''}, torch {torch.__version__}")
    say(f"{'':14} {'size':>7} {'gloo':>12} {'gangline':>14} {'ratio':>7}")
    for name in ("all_reduce", "reduce_scatter"):
        for megabytes in options.sizes:
            elements = megabytes * 1_000_000 // 4 // size * size
            generator = torch.Generator().manual_seed(rank)
            whole = [torch.randn(elements, generator=generator) for _ in ways]
            parts = [torch.empty(elements // size) for _ in ways]

            def call(way: int, name: str = name, whole: Any = whole, parts: Any = parts) -> None:
                if name == "all_reduce":
                    dist.all_reduce(whole[way], dist.ReduceOp.SUM, group=ways[way])
                    whole[way].mul_(1 / size)
                else:
                    dist.reduce_scatter_single(parts[way], whole[way], group=ways[way])

            times = compare([(call, 0), (call, 1)], options.rounds, ways[0])
            if name == "all_reduce":
                check_same(whole[1], size)
            ours, theirs = megabytes / 1e3 / times[1], megabytes / 1e3 / times[0]
            say(
                f"{name:14} {megabytes:4} MB {theirs:7.2f} GB/s {ours:9.2f} GB/s {ours / theirs:6.2f}x",
                flush=True,
            )
    if options.vgg_steps:
        train_vgg(ways, options, say)
    dist.destroy_process_group()


def compare(ways: list[tuple[Callable[[Any], None], Any]], rounds: int, group: Any) -> list[float]:
    """Return the median time of each way in seconds, of the slowest rank, the ways taking turns."""
    import torch
    import torch.distributed as dist

    found: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + 2):
        for way, (call, argument) in enumerate(ways):
            dist.barrier(group)
            start = time.perf_counter()
            call(argument)
            took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX, group=group)
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


def train_vgg(groups: Any, options: argparse.Namespace, say: Callable[..., None]) -> None:
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    model = vgg16()
    images = torch.randn(options.vgg_batch, 3, 224, 224)
    labels = torch.randint(1000, (options.vgg_batch,))
    ways = [
        DistributedDataParallel(model, gradient_as_bucket_view=True, process_group=group) for group in groups
    ]

    def step(parallel: Any) -> None:
        model.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(parallel(images), labels).backward()

    times = compare([(step, way) for way in ways], options.vgg_steps, groups[0])
    size = groups[0].size()
    check_same(model[0].weight.grad, size)
    batch = options.vgg_batch * size
    theirs, ours = batch / times[0], batch / times[1]
    say(f"VGG16, batch {options.vgg_batch} a rank, images/s: gloo {theirs:.2f}, gangline {ours:.2f}")
    say(f"  {ours / theirs:.2f}x ({times[0]:.2f} s against {times[1]:.2f} s a step)")


if __name__ == "__main__":
    main()
