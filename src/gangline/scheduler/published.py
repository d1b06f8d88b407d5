"""What a scheduler says of itself on its Lease, for commands that explain its decisions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEASE_NAME = "gangline-scheduler"
NAMES_ANNOTATION = "gangline.dev/scheduler-names"
LEVELS_ANNOTATION = "gangline.dev/levels"


@dataclass(frozen=True, slots=True)
class Published:
    """What explanations need to know.

    Attributes:
        names: ``spec.schedulerName`` of the pods that it places.
        levels: node labels of the network's levels, the widest first.
    """

    names: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    @property
    def annotations(self) -> dict[str, str]:
        """Of the Lease."""
        return {NAMES_ANNOTATION: ",".join(self.names), LEVELS_ANNOTATION: ",".join(self.levels)}

    @classmethod
    def of(cls, lease: Mapping[str, Any]) -> Published | None:
        """Return what a Lease in wire form says; None when it is no Lease of Gangline's scheduler."""
        notes = lease["metadata"].get("annotations") or {}
        if NAMES_ANNOTATION not in notes:
            return None
        return cls(_words(notes[NAMES_ANNOTATION]), _words(notes.get(LEVELS_ANNOTATION, "")))


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))
