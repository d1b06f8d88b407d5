"""Times of gangs: while their pods are created, and pauses after they were taken back.

Without a clock of their own: times in seconds are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

FORMING = ("Incomplete", "NoGroup")
"""Reasons of gangs that lack something which somebody may be about to create."""

FORMING_S = 2.0
"""For so long after its last pod nobody is told that a gang lacks pods, or its PodGroup."""

FORMING_MAX_S = 30.0
"""For so long at most, however its pods come."""

FIRST_S = 1.0
MOST_S = 60.0
FORGET_S = 2 * MOST_S
"""A gang that was not taken back for so long begins anew; a node refuses a pod within seconds."""


@dataclass(slots=True)
class Forming:
    """When pods of gangs that lack something came, the first and the last, by the gang's key."""

    _seen_s: dict[str, tuple[float, float]] = field(default_factory=dict)

    def grow(self, gangs: Iterable[str], now_s: float) -> None:
        """Note that a pod of a gang, and of those that it is in, has come."""
        for gang in gangs:
            self._seen_s[gang] = self._seen_s.get(gang, (now_s, now_s))[0], now_s

    def among(self, lacking: Iterable[str], now_s: float) -> set[str]:
        """Return which of the gangs that lack something are forming still; the others are forgotten.

        Example:
            >>> forming = Forming()
            >>> forming.grow(["team/g"], 0.0)
            >>> [forming.among(["team/g"], now_s) for now_s in (1.0, 2.0)]
            [{'team/g'}, set()]
        """
        self._seen_s = {gang: self._seen_s.get(gang, (now_s, now_s)) for gang in lacking}
        return {gang for gang in self._seen_s if now_s < self._until_s(gang)}

    def next_s(self, now_s: float) -> float | None:
        """Return when the next of them is forming no more, or None."""
        return min((until for gang in self._seen_s if (until := self._until_s(gang)) > now_s), default=None)

    def _until_s(self, gang: str) -> float:
        first_s, last_s = self._seen_s[gang]
        return min(last_s + FORMING_S, first_s + FORMING_MAX_S)


@dataclass(slots=True)
class GangBackoff:
    """Pauses of gangs that were taken back: longer each time, and from the start once it went well."""

    _failures: dict[str, tuple[int, float]] = field(default_factory=dict)

    def fail(self, gang: str, now_s: float) -> float:
        """Count a failure of a gang; return for how many seconds it has to wait.

        Example:
            >>> pauses = GangBackoff()
            >>> [pauses.fail("team/g", now_s) for now_s in (0.0, 3.0, 9.0)]
            [1.0, 2.0, 4.0]
        """
        self._failures = {key: entry for key, entry in self._failures.items() if now_s - entry[1] < FORGET_S}
        count = self._failures.get(gang, (0, 0.0))[0] + 1
        delay = min(FIRST_S * 2.0 ** (count - 1), MOST_S)
        self._failures[gang] = count, now_s + delay
        return delay
