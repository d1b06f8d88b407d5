"""The report of a whole simulation: every policy at every load, as values and as table cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gangline.simulate.figures import PolicyFigures
from gangline.simulate.replay import ClusterSample

HEADINGS = ("LOAD", "POLICY", "JCT", "WAIT", "MAX", "USED", "GOODPUT", "FRAG", "SPEED")


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One replay.

    Attributes:
        load: asked for, as a share of all GPUs; None for a trace from a file.
        policy: a name of ``gangline.simulate.policies.POLICIES``.
        figures: see :class:`PolicyFigures`.
        samples: the course of the measured span.
        wall_s: how long the replay took here.
    """

    load: float | None
    policy: str
    figures: PolicyFigures
    samples: tuple[ClusterSample, ...]
    wall_s: float

    @property
    def load_text(self) -> str:
        """``80 %``, or ``trace``."""
        return "trace" if self.load is None else f"{100 * self.load:g} %"

    def cells(self) -> tuple[str, ...]:
        """Return the cells below :data:`HEADINGS`."""
        found = self.figures
        return (
            self.load_text,
            self.policy,
            f"{found.completion_mean_s / 60:.1f}m",  # finer than an age: policies differ by minutes
            f"{found.wait_mean_s / 60:.1f}m",
            f"{found.wait_max_s / 60:.0f}m",
            f"{100 * found.utilisation:.1f} %",
            f"{100 * found.goodput:.1f} %",
            f"{100 * found.fragmentation:.1f} %",
            f"{found.speed_mean:.3f}",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome for JSON and YAML, without what differs from one machine to another."""
        return {"load": self.load, "policy": self.policy, **self.figures.as_dict()}
