"""The option ``-T/--type`` of commands that take a job's name: arena's words for kinds of jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gangline.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])

KINDS = {
    "mpijob": "MPIJob",
    "mpi": "MPIJob",
    "mj": "MPIJob",
    "job": "Job",
    "pod": "Pod",
}
"""Words for the kinds that jobs are looked for in."""


def read_type(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    """Return the kind of a word, empty when none is given.

    Raises:
        UserError: it is no kind that is served.
    """
    if not value:
        return ""
    if value.lower() not in KINDS:
        raise UserError(
            f"--type {value}: no jobs of that kind are served", hint=f"there are {', '.join(KINDS)}"
        )
    return KINDS[value.lower()]


def type_option(function: F) -> F:
    """Add ``-T/--type KIND``, passed on as ``kind``: ``MPIJob``, ``Job``, ``Pod`` or an empty text."""
    return click.option(
        "-T",
        "--type",
        "kind",
        metavar="KIND",
        callback=read_type,
        help="Jobs of one kind: mpijob, job or pod.",
    )(function)


def qualified(name: str, kind: str) -> str:
    """Return ``KIND/NAME`` for a name of that kind, the name as it is without one.

    Raises:
        UserError: the name says another kind itself.
    """
    if not kind:
        return name
    said, _, bare = name.rpartition("/")
    if said and said.lower().partition(".")[0].removesuffix("s") != kind.lower():
        raise UserError(f"`{name}` is no {kind}", hint="leave --type out, or the kind before the name")
    return f"{kind.lower()}/{bare}"
