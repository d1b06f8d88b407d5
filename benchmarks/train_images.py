"""Images/s of Gangline's tf_cnn_benchmarks beside a plain DDP script of the same network, ranks, threads.

    python benchmarks/train_images.py [--models resnet50,vgg16,resnet18] [--ranks 1,2] [--rounds 3]

needs a Python with torch: this one, or the one that GANGLINE_TRAIN_PYTHON names. Both are started in turns,
round after round; medians. `plain` is the script with torch's defaults, `plain, channels last` the same with
the memory layout that torch advises for convolutions. The goal, 1.00 of `plain`, decides on the exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PROGRAM = REPOSITORY / "src" / "gangline" / "bench" / "tf_cnn_benchmarks.py"
PLAIN = REPOSITORY / "benchmarks" / "plain_ddp.py"
RUN_LIMIT_S = 900
GOAL = 1.00


def main() -> None:
    parser = argparse.ArgumentParser(description="images/s of our benchmark against a plain DDP script")
    parser.add_argument("--models", default="resnet50,vgg16,resnet18")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="images of each rank")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--half", action="store_true", help="fp16, on GPUs")
    options = parser.parse_args()
    python = os.environ.get("GANGLINE_TRAIN_PYTHON", sys.executable)
    missed = False
    headings = f"{'network':<10} {'ranks':>5} {'ours':>9} {'plain':>9} {'ratio':>6}"
    print(f"{headings} {'plain, channels last':>21} {'ratio':>6}")
    for model in options.models.split(","):
        for ranks in map(int, options.ranks.split(",")):
            ours, plain, last = compare(python, model, ranks, options)
            missed |= ours / plain < GOAL
            print(
                f"{model:<10} {ranks:>5} {ours:>9.2f} {plain:>9.2f} {ours / plain:>6.3f} {last:>21.2f} "
                f"{ours / last:>6.3f}",
                flush=True,
            )
    sys.exit(1 if missed else 0)


def compare(python: str, model: str, ranks: int, options: argparse.Namespace) -> tuple[float, float, float]:
    """Return the medians of ours, plain, and plain with channels last. Unit: images/s of all ranks."""
    shared = {"batch": options.batch, "steps": options.steps, "warmup": options.warmup}
    plain = [python, str(PLAIN), f"--model={model}", *(f"--{name}={value}" for name, value in shared.items())]
    plain += ["--half"] if options.half else []
    rates: tuple[list[float], ...] = ([], [], [])
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, "result.json")
            ours = [python, str(PROGRAM), f"--model={model}", f"--batch_size={options.batch}"]
            ours += [f"--num_batches={options.steps}", f"--num_warmup_batches={options.warmup}"]
            ours += ["--variable_update=horovod", f"--json={result}", f"--use_fp16={options.half}"]
            run(ours, ranks)
            rates[0].append(json.loads(result.read_text())["images_per_s"])
        rates[1].append(json.loads(run(plain, ranks))["images_per_s"])
        rates[2].append(json.loads(run([*plain, "--channels-last"], ranks))["images_per_s"])
    return statistics.median(rates[0]), statistics.median(rates[1]), statistics.median(rates[2])


def run(command: list[str], ranks: int) -> str:
    """Run a program on every rank and return the output of rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cores = len(os.sched_getaffinity(0))
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": str(REPOSITORY / "src")}
    shared |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    shared |= {"OMP_NUM_THREADS": str(max(1, cores // ranks)), "PYTHONWARNINGS": "ignore"}
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=RUN_LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{errors[-2000:]}")
    return outputs[0][0]


if __name__ == "__main__":
    main()
