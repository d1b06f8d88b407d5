"""The options that bound suspension: one table for the scheduler, `gangline up` and the simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click
from msgspec.structs import replace

from gangline.placement import SuspensionBounds

DEFAULTS = SuspensionBounds()

F = TypeVar("F", bound=Callable[..., Any])


class _Option(NamedTuple):
    """One option.

    Attributes:
        kind: what values it takes.
        unit: of these, for people.
        bound: that it sets.
        factor: what one of its unit is in that of the bound.
        text: what it means.
    """

    kind: click.FloatRange | click.IntRange
    unit: str
    bound: str
    factor: int
    text: str


_OPTIONS = {
    "suspend_after": _Option(
        click.FloatRange(0),
        "DEVICE-HOURS",
        "long_after_device_s",
        3600,
        "A job that can go on from a checkpoint and has had more gives way to new ones; 0: none does.",
    ),
    "short_wait": _Option(
        click.IntRange(0),
        "SECONDS",
        "short_wait_s",
        1,
        "A job that has had less, and has waited so long, has any suspended that has had more than it.",
    ),
    "min_run": _Option(click.IntRange(0), "SECONDS", "min_run_s", 1, "It runs at least so long each time."),
    "suspensions": _Option(click.IntRange(0), "N", "suspensions_max", 1, "It is suspended so often at most."),
}


def suspension_options(command: F) -> F:
    """Add the options to a command; one that is not given is None."""
    for name, option in reversed(_OPTIONS.items()):
        default = getattr(DEFAULTS, option.bound) / option.factor
        command = click.option(
            f"--{name.replace('_', '-')}",
            type=option.kind,
            metavar=option.unit,
            help=f"{option.text}  [default: {default:g}]",
        )(command)
    return command


def suspension_bounds(
    options: Mapping[str, float | None], known: SuspensionBounds = DEFAULTS
) -> SuspensionBounds:
    """Return the bounds with what the options say."""
    given = {
        option.bound: option.factor * value
        for name, option in _OPTIONS.items()
        if (value := options[name]) is not None
    }
    return replace(known, **given)
