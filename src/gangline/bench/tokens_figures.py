"""What a token benchmark comes to: tokens a second of every rank and of all, share of the peak. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.bench.figures import median

PEAK_TFLOPS = {
    "B200": 2250.0,
    "H200": 989.4,
    "H100 NVL": 835.0,
    "H100 PCIe": 756.0,
    "H100": 989.4,
    "A100": 311.8,
    "L40S": 362.1,
    "L4": 121.0,
    "A10": 125.0,
}
"""Dense bfloat16, as NVIDIA's data sheets have it; looked for in this order in the device's name."""


def peak_tflops(device: str) -> float | None:
    """Return the peak of a device in bfloat16, None where it is not known.

    Args:
        device: name as the driver tells it, ``NVIDIA H100 80GB HBM3``.
    """
    words = f" {device.replace('-', ' ')} "
    return next((peak for name, peak in PEAK_TFLOPS.items() if f" {name} " in words), None)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The figures of a run.

    Attributes:
        each: tokens a second of every rank, by its median step.
        total: of all ranks together, by the slowest rank's median step: they wait for one another.
        mfu: share of the devices' peak that the model's own operations are, None where that is not known.
    """

    each: list[float]
    total: float
    mfu: float | None


def tokens_of(
    steps_s: Sequence[Sequence[float]], tokens_per_step: int, flops_per_token: float, peak: float | None
) -> Tokens:
    """Return the figures.

    Args:
        steps_s: times of the steps of every rank.
        tokens_per_step: of one rank.
        flops_per_token: forward and backward.
        peak: of one device in TFLOP/s.
    """
    medians = [median(times) for times in steps_s]
    total = len(medians) * tokens_per_step / max(medians)
    mfu = None if peak is None else total * flops_per_token / (len(medians) * peak * 1e12)
    return Tokens([tokens_per_step / one for one in medians], total, mfu)
