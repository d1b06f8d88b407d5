"""The options that bound suspension, of the scheduler and of the simulation alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from gangline.placement import Policy

DEFAULTS = Policy()
HOUR_S = 3600.0

F = TypeVar("F", bound=Callable[..., Any])


def suspension_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def with_suspension(policy: Policy, suspend_after: float, min_run: int, suspensions: int) -> Policy:
    """Return the policy with what the options say."""
    return replace(
        policy,
        long_after_device_s=HOUR_S * suspend_after,
        min_run_s=float(min_run),
        suspensions_max=suspensions,
    )


_OPTIONS = (
    click.option(
        "--suspend-after",
        type=click.FloatRange(0),
        default=DEFAULTS.long_after_device_s / HOUR_S,
        metavar="DEVICE-HOURS",
        show_default=True,
        help="A job that can go on from a checkpoint and has had more gives way to new ones; 0: none does.",
    ),
    click.option(
        "--min-run",
        type=click.IntRange(0),
        default=int(DEFAULTS.min_run_s),
        metavar="SECONDS",
        show_default=True,
        help="It runs at least so long each time.",
    ),
    click.option(
        "--suspensions",
        type=click.IntRange(0),
        default=DEFAULTS.suspensions_max,
        metavar="N",
        show_default=True,
        help="It is suspended so often at most.",
    ),
)
