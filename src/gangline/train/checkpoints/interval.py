"""How often to save: from what a save costs and how often such trainings fail. Pure.

Young's first-order optimum (A First Order Approximation to the Optimum Checkpoint Interval, CACM 17(9),
1974): the square root of twice the cost times the mean time between failures. The rate of failures begins
with a published one and is corrected by what this training itself has met.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

PRIOR_RANK_HOURS = 50_700.0
"""Hours of one device to a failure: 419 unexpected interruptions in 54 days on 16,384 GPUs (The Llama 3 Herd
of Models, 2024, section 3.3.4). It counts as one failure seen in so many hours."""

INTERVAL_S_MAX = 1800.0
"""Nobody loses more than half an hour: on few ranks failures of machines are rare, Ctrl-C is not."""

FIRST_STEPS = 10
"""Until a save has told what it costs."""


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """What a training has met so far, over all its starts.

    Attributes:
        rank_hours: hours of all ranks together.
        failures: starts that found the one before not closed.
        is_open: a start is under way, or failed.
    """

    rank_hours: float = 0.0
    failures: int = 0
    is_open: bool = False

    def begun(self) -> FailureHistory:
        """Return it with one more start."""
        return FailureHistory(self.rank_hours, self.failures + self.is_open, is_open=True)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def failure_s(history: FailureHistory, ranks: int) -> float:
    """Return the mean seconds between failures of a training of so many ranks.

    Example:
        >>> round(failure_s(FailureHistory(), 16_384) / 3600, 1)
        3.1
    """
    return 3600 * (PRIOR_RANK_HOURS + history.rank_hours) / (1 + history.failures) / ranks


def interval_s(cost_s: float, between_failures_s: float) -> float:
    """Return the seconds from one save to the next.

    Example:
        >>> round(interval_s(30, 3.1 * 3600))
        818
    """
    return min(INTERVAL_S_MAX, math.sqrt(2 * cost_s * between_failures_s))


def interval_steps(cost_s: float, step_s: float, between_failures_s: float) -> int:
    """Return the steps from one save to the next, at least one."""
    return max(1, round(interval_s(cost_s, between_failures_s) / max(step_s, 1e-6)))
