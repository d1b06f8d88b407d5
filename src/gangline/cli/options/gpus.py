"""The options about GPUs of ``gangline run`` and ``gangline up``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from gangline.client.run.gpus import GpuOptions

F = TypeVar("F", bound=Callable[..., Any])


def simulation_options(function: F) -> F:
    """Add ``--simulate-gpus`` and ``--gpu-model``, passed on as ``gpus``."""
    from functools import wraps

    @wraps(function)
    def wrapped(*args: Any, simulate_gpus: int | None, gpu_model: str, **rest: Any) -> Any:
        return function(*args, gpus=GpuOptions(simulate=simulate_gpus, model=gpu_model), **rest)

    described = click.option(
        "--gpu-model",
        default="",
        metavar="NAME",
        help="Machine that the simulated GPUs belong to, such as v100-dgx1.",
    )(wrapped)
    return click.option(
        "--simulate-gpus",
        type=int,
        metavar="N",
        help="GPUs in name only on each node of the cluster, called simulated everywhere.",
    )(described)  # type: ignore[return-value]


def gpu_options(function: F) -> F:
    """Add all options about GPUs, passed on as one ``gpus``."""
    from functools import wraps

    @simulation_options
    @wraps(function)
    def wrapped(
        *args: Any, gpus_per_rank: int | None, total: int | None, fit: bool, gpus: GpuOptions, **rest: Any
    ) -> Any:
        return function(
            *args, gpus=msgspec.structs.replace(gpus, per_rank=gpus_per_rank, total=total, fit=fit), **rest
        )

    described = click.option(
        "--fit", is_flag=True, help="Shrink a job that asks for more GPUs than there are; says to what."
    )(wrapped)
    described = click.option(
        "--gpus",
        "total",
        type=int,
        metavar="K",
        help="GPUs of all ranks of PROGRAM together, shared evenly by them.",
    )(described)
    return click.option(
        "--gpus-per-rank",
        type=int,
        metavar="K",
        help="GPUs of its own for each rank of PROGRAM.  [default: none]",
    )(described)  # type: ignore[return-value]
