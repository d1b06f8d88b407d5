"""How long runs are kept, and which go first. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import msgspec

from gangline.errors import UserError
from gangline.units import parse_quantity

RUNS_AGE_MAX_S = 30 * 86400.0
RUNS_BYTES_MAX = 1 << 30
"""Logs and records of all runs of a cluster together."""
RUNS_MAX = 1000
"""Reading the records of so many takes a tenth of a second."""

AGE_VARIABLE = "GANGLINE_RUNS_AGE"
SIZE_VARIABLE = "GANGLINE_RUNS_SIZE"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

# 30d, 12h, 1w
_AGE = re.compile(r"(\d+)([smhdw])")


class RunSize(msgspec.Struct, frozen=True):
    """A run on disk: when it was last written, in seconds since 1970, and its bytes with its logs."""

    uid: str
    used_at: float
    size_bytes: int


class Bounds(msgspec.Struct, frozen=True):
    """What is kept of runs that are over."""

    age_max_s: float = RUNS_AGE_MAX_S
    bytes_max: int = RUNS_BYTES_MAX
    runs_max: int = RUNS_MAX

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Bounds:
        """Return the bounds that the user's variables set, the usual ones without.

        Raises:
            UserError: a variable is no duration, or no size.
        """
        age, size = environment.get(AGE_VARIABLE, ""), environment.get(SIZE_VARIABLE, "")
        age_max_s = parse_age(age, AGE_VARIABLE) if age else RUNS_AGE_MAX_S
        try:
            bytes_max = int(parse_quantity(size)) if size else RUNS_BYTES_MAX
        except ValueError:
            bytes_max = -1
        if bytes_max < 0:
            raise UserError(f"{SIZE_VARIABLE}={size} is no size", hint=f"write {SIZE_VARIABLE}=2Gi")
        return cls(age_max_s, bytes_max)


def parse_age(text: str, subject: str) -> float:
    """Return the seconds of ``7d``, ``12h``, ``1w``.

    Raises:
        UserError: it is none; the message begins with the subject.
    """
    found = _AGE.fullmatch(text)
    if not found:
        raise UserError(
            f"{subject}: `{text}` is no duration", hint="write `12h`, `7d` or `4w` (s, m, h, d, w)"
        )
    return float(int(found[1]) * _SECONDS[found[2]])


def choose_expired(
    runs: Iterable[RunSize], bounds: Bounds, *, living: Collection[str], now_s: float
) -> list[str]:
    """Return the uids of the runs to remove, the oldest first: too old, too many, or above the size.

    Runs of jobs that are still there are never chosen, and count for nothing.
    """
    over = sorted((run for run in runs if run.uid not in living), key=lambda run: run.used_at)
    count, total = len(over), sum(run.size_bytes for run in over)
    expired = []
    for run in over:
        is_old = now_s - run.used_at > bounds.age_max_s
        if not (is_old or count > bounds.runs_max or total > bounds.bytes_max):
            break
        expired.append(run.uid)
        count, total = count - 1, total - run.size_bytes
    return expired
