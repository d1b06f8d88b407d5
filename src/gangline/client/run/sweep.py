"""Sweeps: a program with places for values, and the runs that fill them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import msgspec

from gangline.errors import UserError

POINTS_MAX = 1000

# lr, weight_decay
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# {lr}
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
# 0..4, -2..2
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


class Axis(msgspec.Struct, frozen=True):
    """One value that is varied: its name, and its values as words of a command line."""

    name: str
    values: tuple[str, ...]


class SweepPoint(msgspec.Struct, frozen=True, rename="camel"):
    """One run of a sweep.

    Attributes:
        values: by the name of the axis.
        run: name of the run; empty before it began.
        exit_code: of its command; None where it has not ended.
    """

    values: dict[str, str]
    run: str = ""
    exit_code: int | None = None

    @property
    def words(self) -> str:
        """Its values, for people: ``lr=1e-3 seed=0``."""
        return " ".join(f"{name}={value}" for name, value in self.values.items())


class Sweep(msgspec.Struct, frozen=True):
    """A sweep as it is kept.

    Attributes:
        name: its runs are called by it, with numbers.
        program: with places like ``{lr}``.
        axes: the first one varies slowest.
        points: in the order in which they are run.
    """

    name: str
    program: tuple[str, ...]
    axes: tuple[Axis, ...]
    points: tuple[SweepPoint, ...] = ()

    def with_point(self, index: int, point: SweepPoint) -> Sweep:
        """Return the sweep with one point changed."""
        points = (*self.points[:index], point, *self.points[index + 1 :])
        return msgspec.structs.replace(self, points=points)


def read_axis(text: str) -> Axis:
    """Return the axis of ``NAME=VALUE,...``; ``A..B`` means the whole numbers from A to B, both included.

    Raises:
        UserError: it is not of that form, or has a value twice.

    Example:
        >>> read_axis("seed=0..2,7").values
        ('0', '1', '2', '7')
    """
    name, equals, rest = text.partition("=")
    hint = "--sweep lr=1e-3,1e-2 --sweep seed=0..4"
    if not equals or not _NAME.fullmatch(name) or not rest:
        raise UserError(f"--sweep {text}: must be NAME=VALUE,VALUE,... or NAME=FIRST..LAST", hint=hint)
    values: list[str] = []
    for word in rest.split(","):
        if found := _RANGE.fullmatch(word):
            first, last = int(found[1]), int(found[2])
            if abs(last - first) >= POINTS_MAX:
                raise UserError(f"--sweep {text}: `{word}` has more than {POINTS_MAX} values")
            step = 1 if last >= first else -1
            values += [str(number) for number in range(first, last + step, step)]
        else:
            values.append(word)
    if len(set(values)) < len(values) or "" in values:
        raise UserError(f"--sweep {text}: a value is empty, or there twice", hint=hint)
    return Axis(name, tuple(values))


def new_sweep(name: str, program: Sequence[str], texts: Iterable[str]) -> Sweep:
    """Return the sweep over every combination of values.

    Raises:
        UserError: an axis is none, has no place in the program or is there twice, or there are too many runs.
    """
    axes = tuple(map(read_axis, texts))
    names = [axis.name for axis in axes]
    for one in names:
        if names.count(one) > 1:
            raise UserError(f"--sweep {one}=... is there twice")
        if not any(f"{{{one}}}" in word for word in program):
            raise UserError(
                f"--sweep {one}=...: the program has no `{{{one}}}`",
                hint=f"gangline run --sweep {one}=1,2 -- python train.py {{{one}}}",
            )
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > POINTS_MAX:
        raise UserError(f"a sweep has at most {POINTS_MAX} runs (found {count})")
    combinations = product(*(axis.values for axis in axes))
    points = (SweepPoint(dict(zip(names, values, strict=True))) for values in combinations)
    return Sweep(name, tuple(program), axes, tuple(points))


def filled(program: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return the program with values in their places; other braces stay.

    Example:
        >>> filled(["train.py", "--lr={lr}", "{other}"], {"lr": "0.1"})
        ['train.py', '--lr=0.1', '{other}']
    """
    # All places at once: a value that looks like one stays as it is.
    return [_PLACE.sub(lambda place: values.get(place[1], place[0]), word) for word in program]


def resumed(kept: Sweep, asked: Sweep) -> Sweep:
    """Return the sweep as it was kept, if it is the one that is asked for.

    Raises:
        UserError: its program or its values are others.
    """
    if (kept.program, kept.axes) != (asked.program, asked.axes):
        raise UserError(
            f"sweep `{asked.name}` was begun with another program or other values",
            hint="repeat its line with --resume, or leave --resume out to begin anew",
        )
    return kept


def own_words(words: Sequence[str], dropped: Mapping[str, bool]) -> list[str]:
    """Return the words of a line of options without some of them.

    Args:
        words: of the line.
        dropped: option -> whether a value follows.
    """
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, _ = word.partition("=")
        if option not in dropped:
            kept.append(word)
        elif dropped[option] and not equals:
            next(rest, None)
    return kept
