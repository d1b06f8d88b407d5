"""How long a gang waits after it was taken back: longer each time, and from the start once it went well."""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST_S = 1.0
MOST_S = 60.0
FORGET_S = 2 * MOST_S
"""A gang that was not taken back for so long begins anew; a node refuses a pod within seconds."""


@dataclass(slots=True)
class GangBackoff:
    """Pauses of gangs, by their keys. Without a clock of its own: times in seconds are arguments."""

    _failures: dict[str, tuple[int, float]] = field(default_factory=dict)

    def fail(self, gang: str, now_s: float) -> float:
        """Count a failure of a gang; return for how many seconds it has to wait.

        Example:
            >>> pauses = Backoff()
            >>> [pauses.fail("team/g", now_s) for now_s in (0.0, 3.0, 9.0)]
            [1.0, 2.0, 4.0]
        """
        self._failures = {key: entry for key, entry in self._failures.items() if now_s - entry[1] < FORGET_S}
        count = self._failures.get(gang, (0, 0.0))[0] + 1
        delay = min(FIRST_S * 2.0 ** (count - 1), MOST_S)
        self._failures[gang] = count, now_s + delay
        return delay
