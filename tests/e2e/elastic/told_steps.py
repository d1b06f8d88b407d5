"""What the steps that an elastic training told must be, whoever came and went."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest


def assert_at_most_one_save_is_lost(steps: list[dict[str, Any]], *, steps_per_save: int) -> None:
    assert steps[0]["step"] == 1
    for before, now in pairwise(steps):
        saved = before["step"] // steps_per_save * steps_per_save
        # Whoever told a step may have ended before it could save it.
        last = saved - steps_per_save if saved == before["step"] else saved
        assert now["step"] in (before["step"] + 1, saved + 1, last + 1), (before, now)


def assert_the_loss_goes_on_falling(steps: list[dict[str, Any]]) -> None:
    losses: dict[int, float] = {}
    for one in steps:
        known = losses.setdefault(one["step"], one["loss"])
        assert one["loss"] == pytest.approx(known), f"step {one['step']} was taken again and is another"
    falling = [losses[step] for step in sorted(losses)]
    assert all(now < before for before, now in pairwise(falling))
