"""The option ``-T/--type`` of commands that take a job's name: arena's words for kinds of jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gangline.errors import UserError
from gangline.workloads.kinds import KINDS, kind_called

F = TypeVar("F", bound=Callable[..., Any])


def read_type(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    """Return the kind of a word, empty when none is given.

    Raises:
        UserError: it is no kind that is served.
    """
    if not value:
        return ""
    kind = kind_called(value)
    if kind is None:
        words = ", ".join(word for known in KINDS for word in known.words)
        raise UserError(f"--type {value}: no jobs of that kind are served", hint=f"there are {words}")
    return kind.name


def type_option(function: F) -> F:
    """Add ``-T/--type KIND``, passed on as ``kind``: ``MPIJob``, ``Job``, and so on, or an empty text."""
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
    if said and ((of_name := kind_called(said)) is None or of_name.name != kind):
        raise UserError(f"`{name}` is no {kind}", hint="leave --type out, or the kind before the name")
    return f"{kind.lower()}/{bare}"
