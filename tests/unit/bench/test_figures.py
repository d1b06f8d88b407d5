"""How figures come from step times; expected values are worked out by hand from upstream's definitions."""

from __future__ import annotations

import math

import pytest

from gangline.bench.figures import Speed, confidence, step_speed


def test_mean_is_that_of_the_times_and_not_of_the_speeds() -> None:
    # 10 images in 1 s and in 3 s: 20 images in 4 s.
    assert step_speed(10, [1.0, 3.0]).mean == 5.0


def test_uncertainty_and_jitter_of_three_steps() -> None:
    # Speeds 10, 20, 40: mean 70/3, population variance 1400/9; median 20, deviations 10, 0, 20.
    speed = step_speed(10, [1.0, 0.5, 0.25])

    assert speed.uncertainty == pytest.approx(math.sqrt(1400 / 9) / math.sqrt(3))
    assert speed.jitter == pytest.approx(1.4826 * 10)


def test_one_step_has_neither_uncertainty_nor_jitter() -> None:
    assert step_speed(64, [0.5]) == Speed(128.0, 0.0, 0.0)


def test_weighted_mean_leans_to_the_newest_step() -> None:
    # Weights 0.5 and 1: (0.5 * 1 + 1 * 4) / 1.5 = 3 s.
    assert step_speed(30, [1.0, 4.0], weight=0.5).mean == pytest.approx(10.0)


def test_confidence_is_196_population_deviations() -> None:
    mean, spread = confidence([90.0, 110.0])

    assert (mean, spread) == (100.0, pytest.approx(19.6))
