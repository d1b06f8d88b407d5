"""Which device a rank takes, and how many threads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from gangline.errors import UserError
from gangline.train.environment import Environment, Ranks


def set_threads(threads: int | None, environment: Environment, ranks: Ranks, torch: Any) -> int:
    """Set torch's threads and return their number."""
    given = environment.get("OMP_NUM_THREADS", "").split(",")[0]
    if threads is None:
        threads = int(given) if given.isdigit() and int(given) else max(1, cores() // (ranks.local_size or 1))
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for worker processes and libraries that load later
    torch.set_num_threads(threads)
    return threads


def cores() -> int:
    """Return how many cores this process may use, a container's CPU limit included."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return count


def choose_device(backend: str, facts: list[dict[str, Any]], ranks: Ranks, torch: Any) -> tuple[Any, str]:
    """Return this rank's device and the backend; a GPU for each rank means nccl."""
    chosen = [gpu_of(facts, rank) for rank in range(ranks.size)]
    own_each = all(chosen) and len(set(chosen)) == ranks.size
    if backend == "nccl" and not own_each:
        without = [rank for rank, gpu in enumerate(chosen) if not gpu]
        raise UserError(
            f"backend nccl wants a GPU for every rank, but "
            f"{f'rank {without[0]} sees none' if without else 'two ranks share one'}",
            hint="start as many ranks as there are GPUs, or use backend gangline",
        )
    if backend in ("gangline", "gloo") or not own_each:
        if backend == "auto" and any(chosen) and ranks.rank == 0:
            note("not every rank has a GPU of its own: all train on the CPU")
        return torch.device("cpu"), "gangline"
    index = facts[ranks.rank]["gpus"].index(chosen[ranks.rank])
    torch.cuda.set_device(index)
    return torch.device("cuda", index), "nccl"


def gpu_of(facts: list[dict[str, Any]], rank: int) -> str:
    """Return the GPU that a rank takes: by its place among the ranks that see the same ones."""
    seen = facts[rank]["gpus"]
    alike = [other for other in range(rank) if facts[other]["gpus"] == seen]
    return str(seen[len(alike) % len(seen)]) if seen else ""


def note(text: str) -> None:
    """Say something once, on standard error."""
    sys.stderr.write(f"gangline.train: {text}\n")
    sys.stderr.flush()
