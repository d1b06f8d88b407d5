"""The options that bound suspension, of the scheduler, `gangline up` and the simulation alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def with_suspension(policy: Policy, options: Mapping[str, Any]) -> Policy:
    """Return the policy with what the options say."""
    return replace(
        policy,
        long_after_device_s=HOUR_S * options["suspend_after"],
        short_wait_s=float(options["short_wait"]),
        min_run_s=float(options["min_run"]),
        suspensions_max=options["suspensions"],
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
        "--short-wait",
        type=click.IntRange(0),
        default=int(DEFAULTS.short_wait_s),
        metavar="SECONDS",
        show_default=True,
        help="A job that has had less, and has waited so long, has any suspended that has had more than it.",
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
