"""The pod that proves that a GPU is handed out: CUDA's sample ``vectorAdd``, with its lines.

On a GPU the kernel is compiled by torch and launched with the sample's grid. Without one the sum is computed
on the CPU, and two lines say so in place of those about copies, the launch and the test: it tells
nothing of a GPU.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.bench import entry
from gangline.errors import GanglineError

ELEMENTS = 50_000
THREADS = 256
BLOCKS = (ELEMENTS + THREADS - 1) // THREADS
TOLERANCE = 1e-5
SIMULATED = "GPU-simulated-"
"""So the ids of GPUs begin that exist in name only (``devices/simulated.py``)."""

_KERNEL = """
extern "C" __global__ void vector_add(const float* a, const float* b, float* sum, int count)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) sum[index] = a[index] + b[index];
}
"""


class WrongSumError(GanglineError):
    """The device computed a wrong sum."""

    code = "wrong-sum"


def main(words: Sequence[str]) -> None:
    """Add two vectors and check every element."""
    del words
    entry.say(f"[Vector addition of {ELEMENTS} elements]")
    generator = random.Random(1)
    first, second = ([generator.random() for _ in range(ELEMENTS)] for _ in range(2))
    has_gpu = _has_gpu()
    total = _on_gpu(first, second) if has_gpu else _on_cpu(first, second)
    for index, value in enumerate(total):
        if abs(first[index] + second[index] - value) > TOLERANCE:
            raise WrongSumError(f"result verification failed at element {index}")
    entry.say("Test PASSED" if has_gpu else "Test NOT RUN on a GPU: the sum is right on the CPU")
    entry.say("Done")


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def _on_cpu(first: list[float], second: list[float]) -> list[float]:
    given = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    why = f"{given} is simulated" if given.startswith(SIMULATED) else "No GPU that torch can use"
    entry.say(f"{why}: added on the CPU, with nothing copied or launched")
    return [a + b for a, b in zip(first, second, strict=True)]


def _on_gpu(first: list[float], second: list[float]) -> list[float]:
    import torch

    entry.say("Copy input data from the host memory to the CUDA device")
    a, b = (torch.tensor(values, dtype=torch.float32, device="cuda") for values in (first, second))
    kernel = None
    with suppress(AttributeError, RuntimeError, OSError):  # before torch 2.9, or without NVRTC
        kernel = torch.cuda._compile_kernel(_KERNEL, "vector_add")
    if kernel is None:
        entry.say(f"CUDA kernel launch by torch {torch.__version__}, which chooses its grid")
        result = a + b
    else:
        entry.say(f"CUDA kernel launch with {BLOCKS} blocks of {THREADS} threads")
        result = torch.full_like(a, float("nan"))
        kernel((BLOCKS, 1, 1), (THREADS, 1, 1), [a, b, result, ELEMENTS])
    entry.say("Copy output data from the CUDA device to the host memory")
    return [float(value) for value in result.cpu()]


if __name__ == "__main__":
    entry.run(main)
