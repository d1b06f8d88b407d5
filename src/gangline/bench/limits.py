"""What a small machine lowers in a benchmark without a change to its manifest.

``GANGLINE_BENCH_LIMITS=batch_size=8,num_batches=20,model=resnet18`` sets upper bounds for the numbers and
replaces the model. A program applies them to what the user asked for and says with ``line`` what became of
it, on a line of its own before its header and after its total.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.errors import UserError

VARIABLE = "GANGLINE_BENCH_LIMITS"
COUNTS = ("batch_size", "num_batches", "num_warmup_batches", "num_iters")
"""Names of the numbers, which are upper bounds."""
KEYS = (*COUNTS, "model", "data")
SYNTHETIC = "synthetic"
"""The value of ``data``: images are made up, none are read."""
PREFIX = "Limited by --bench-limits: "


def parse(text: str) -> dict[str, int | str]:
    """Return the limits of a comma-separated text.

    Example:
        >>> parse("batch_size=8,model=resnet18")
        {'batch_size': 8, 'model': 'resnet18'}

    Raises:
        UserError: a key is unknown, or a bound is no whole number above 0.
    """
    limits: dict[str, int | str] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (part.strip() for part in word.partition("="))
        if key not in KEYS or not equals:
            raise UserError(
                f"bench limit `{word}`: its name is none of {', '.join(KEYS)}",
                hint="write for example `batch_size=8,num_batches=20`",
            )
        if key in COUNTS:
            if not value.isdecimal() or (int(value) == 0 and key != "num_warmup_batches"):
                raise UserError(f"bench limit `{key}` must be a whole number above 0 (found `{value}`)")
            limits[key] = int(value)
        elif key == "data" and value != SYNTHETIC:
            raise UserError(f"bench limit `data` can only be `{SYNTHETIC}` (found `{value}`)")
        else:
            limits[key] = value
    return limits


@dataclass(slots=True)
class Limits:
    """Bounds, and a memory of what they changed.

    Attributes:
        bounds: by key.
        changed: by key, what the user asked for and what it became.
    """

    bounds: Mapping[str, int | str]
    changed: dict[str, tuple[object, object]] = field(default_factory=dict)

    def count(self, key: str, asked: int) -> int:
        """Return a number, lowered to its bound where there is one."""
        bound = self.bounds.get(key)
        return self.lower(key, asked, bound) if isinstance(bound, int) else asked

    def lower(self, key: str, asked: int, bound: int) -> int:
        """Return a number, lowered to a bound that follows from another limit."""
        if bound >= asked:
            return asked
        first, _ = self.changed.get(key, (asked, asked))
        self.changed[key] = (first, bound)
        return bound

    def model(self, asked: str) -> str:
        """Return the model to use instead of the one asked for."""
        model = str(self.bounds.get("model", asked))
        if model != asked:
            self.changed["model"] = (asked, model)
        return model

    def data(self, asked: str | None) -> str | None:
        """Return the folder of the data set, None for synthetic data."""
        if asked and self.bounds.get("data"):
            self.changed["data"] = (asked, SYNTHETIC)
            return None
        return asked

    def line(self) -> str:
        """Return what was limited, for people; empty when nothing was."""
        if not self.changed:
            return ""
        return PREFIX + ", ".join(f"{key} {asked} -> {used}" for key, (asked, used) in self.changed.items())

    def record(self) -> dict[str, dict[str, object]]:
        """Return what was limited, for the result's JSON."""
        return {key: {"asked": asked, "used": used} for key, (asked, used) in self.changed.items()}


def from_environment(environ: Mapping[str, str] | None = None) -> Limits:
    """Return the limits that this process runs under.

    Raises:
        UserError: the variable breaks a rule of ``parse``.
    """
    return Limits(parse((os.environ if environ is None else environ).get(VARIABLE, "")))
