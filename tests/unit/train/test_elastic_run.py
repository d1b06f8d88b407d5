"""Leaving a generation: what functions that failed held is let go."""

from __future__ import annotations

import weakref

import pytest

from gangline.train.elastic.run import _clear_frames


class Model:
    pass


def failing(kept: list[weakref.ref[Model]]) -> None:
    model = Model()
    kept.append(weakref.ref(model))
    raise RuntimeError("a peer is gone")


@pytest.mark.timeout(10)
def test_errors_that_lead_to_each_other_in_a_circle_let_go_of_what_they_hold() -> None:
    kept: list[weakref.ref[Model]] = []
    with pytest.raises(RuntimeError) as raised:
        failing(kept)
    first, second = raised.value, ValueError("seen meanwhile")
    first.__cause__, second.__context__ = second, first

    _clear_frames(first)

    assert kept[0]() is None
