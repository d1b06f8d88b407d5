"""A meeting of ranks ends when one of them is lost."""

from __future__ import annotations

import threading

import pytest

from gangline.train.peers import PeerLostError
from gangline.train.unless_lost import unless_lost


def test_who_meets_gets_what_was_met() -> None:
    assert unless_lost(lambda: 7, lambda: False) == 7
    assert unless_lost(lambda: 7, None) == 7


def test_error_of_the_meeting_is_raised() -> None:
    def meet() -> None:
        raise ValueError("no such port")

    with pytest.raises(ValueError, match="no such port"):
        unless_lost(meet, lambda: False)


def test_lost_rank_ends_a_meeting_that_never_ends() -> None:
    never = threading.Event()
    with pytest.raises(PeerLostError):
        unless_lost(lambda: never.wait(10.0), lambda: True)
    never.set()
