"""Generations of workers: who trains with whom as ranks are lost and hosts come and go."""

from __future__ import annotations

import pytest

from gangline.launch.elastic.membership import FREE_LIMIT_S, JOIN_LIMIT_S, Membership, TooFewRanksError
from gangline.launch.hosts import Host


def begun(*hosts: Host, ranks_min: int = 2, restarts: int = 3, ranks_max: int = 99) -> Membership:
    """Return a membership whose first generation has begun."""
    found = Membership(hosts, ranks_min, ranks_max, restarts, now=0.0)
    for worker in found.starts(0.0):
        found.is_free(worker.number)
    assert found.decide(1.0, is_start_over=False)
    return found


def ranks(found: Membership) -> list[int]:
    return [member.number for member in found.generation.members]


def test_first_generation_waits_for_all_and_places_them_by_host() -> None:
    found = Membership([Host("a", 2), Host("b", 1)], 2, 99, 3, now=0.0)
    first, second, third = found.starts(0.0)
    assert found.starts(0.1) == []
    found.is_free(third.number)
    found.is_free(first.number)
    assert not found.decide(1.0, is_start_over=False)

    found.is_free(second.number)
    assert found.decide(2.0, is_start_over=False)

    places = [(one.host, one.local_rank, one.local_size, one.node_rank) for one in found.generation.members]
    assert places == [("a", 0, 2, 0), ("a", 1, 2, 0), ("b", 0, 1, 1)]
    assert (found.generation.number, found.generation.is_changing) == (1, False)


def test_start_that_is_over_begins_with_those_that_are_there() -> None:
    found = Membership([Host("a", 3)], 2, 99, 3, now=0.0)
    for worker in found.starts(0.0)[:2]:
        found.is_free(worker.number)

    assert found.decide(30.0, is_start_over=True)
    assert ranks(found) == [0, 1]


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_lost_rank_ends_the_generation_and_the_others_go_on_with_the_oldest_first(lost: int) -> None:
    found = begun(Host("a", 4))
    found.ended(lost, 137, 10.0)
    assert found.generation.is_changing
    assert found.generation.has_lost
    left = [number for number in range(4) if number != lost]
    for number in left[:2]:
        found.is_free(number)
        assert not found.decide(11.0, is_start_over=True)  # one is still inside

    found.is_free(left[2])
    assert found.decide(12.0, is_start_over=True)
    assert (found.generation.number, ranks(found)) == (2, left)
    assert not found.generation.has_lost


def test_host_that_failed_waits_out_its_cool_down_and_longer_the_next_time() -> None:
    found = begun(Host("a", 2), Host("b", 2))
    found.ended(3, 137, 10.0)
    assert found.starts(39.9) == []
    (again,) = found.starts(40.0)
    assert (again.host, again.number) == ("b", 4)

    found.ended(4, 1, 50.0)
    assert found.starts(109.9) == []
    assert len(found.starts(110.0)) == 1


def test_new_worker_joins_when_the_others_have_committed_and_is_never_rank_0() -> None:
    found = begun(Host("a", 2))
    found.hosts = [Host("b", 1), Host("a", 2)]
    (new,) = found.starts(5.0)
    assert not found.decide(5.0, is_start_over=True)  # it is still importing torch
    found.is_free(new.number)
    assert found.decide(6.0, is_start_over=True)
    assert found.generation.is_changing
    assert not found.generation.has_lost  # nobody is freed before that commit
    assert ranks(found) == [0, 1]

    found.is_free(0)
    found.is_free(1)
    assert found.decide(7.0, is_start_over=True)
    assert ranks(found) == [0, 1, 2]
    assert not found.decide(8.0, is_start_over=True)


def test_workers_of_a_host_that_is_gone_from_the_list_leave_unless_too_few_would_stay() -> None:
    found = begun(Host("a", 2), Host("b", 1))
    found.hosts = [Host("a", 2)]
    assert found.decide(5.0, is_start_over=True)
    for number in range(3):
        found.is_free(number)
    assert found.decide(6.0, is_start_over=True)
    assert ranks(found) == [0, 1]

    found.hosts = [Host("b", 1)]
    assert not found.decide(7.0, is_start_over=True)


def test_one_loss_too_many_ends_all() -> None:
    found = begun(Host("a", 4), restarts=1)
    found.ended(2, 137, 1.0)
    with pytest.raises(TooFewRanksError, match="lost 2 times, --max-restarts 1"):
        found.ended(1, 137, 2.0)


def test_host_that_is_lost_counts_as_no_failure_of_a_rank() -> None:
    found = begun(Host("a", 1), Host("b", 3), restarts=0)
    found.host_ended("b", 255, 10.0)
    found.is_free(0)
    assert found.decide(10.0, is_start_over=True) is False  # two are wanted
    assert [worker.host for worker in found.starts(40.0)] == ["b", "b", "b"]


def test_rank_that_fails_on_a_host_that_is_taken_away_counts_as_no_failure() -> None:
    found = begun(Host("a", 2), Host("b", 1), restarts=0)
    found.change_hosts([Host("a", 2)])
    found.ended(2, 143, 10.0)
    assert found.generation.is_changing


def test_last_host_that_is_lost_ends_all() -> None:
    found = begun(Host("a", 2))
    with pytest.raises(TooFewRanksError, match="no other rank is left that has trained"):
        found.host_ended("a", 255, 10.0)


def test_new_worker_does_not_begin_anew_when_all_that_have_trained_are_lost() -> None:
    found = begun(Host("a", 1), Host("b", 1), ranks_min=1)
    found.change_hosts([Host("a", 1), Host("b", 1), Host("c", 1)])
    found.starts(5.0)
    found.ended(0, 137, 6.0)
    with pytest.raises(TooFewRanksError, match="no other rank is left that has trained"):
        found.ended(1, 137, 6.1)


def test_host_that_was_away_and_is_back_waits_for_nothing() -> None:
    found = begun(Host("a", 2), Host("b", 1))
    found.host_ended("b", 255, 10.0)
    found.change_hosts([Host("a", 2)])
    found.change_hosts([Host("a", 2), Host("b", 1)])
    assert len(found.starts(11.0)) == 1


def test_too_few_are_waited_for_within_bounds() -> None:
    found = begun(Host("a", 2))
    found.ended(1, 137, 10.0)
    found.is_free(0)
    assert not found.decide(JOIN_LIMIT_S, is_start_over=True)
    with pytest.raises(TooFewRanksError, match="1 ranks are left, at least 2"):
        found.decide(JOIN_LIMIT_S + 10.0, is_start_over=True)


def test_who_does_not_come_out_of_a_lost_generation_is_late() -> None:
    found = begun(Host("a", 3))
    found.ended(1, 137, 10.0)
    found.is_free(0)
    assert found.late(10.0 + FREE_LIMIT_S - 1) == []
    assert [worker.number for worker in found.late(10.0 + FREE_LIMIT_S)] == [2]


def test_training_that_has_ended_begins_nothing_more() -> None:
    found = begun(Host("a", 2))
    found.ended(0, 0, 5.0)
    assert found.is_finished
    assert found.starts(99.0) == []
    assert not found.decide(99.0, is_start_over=True)


def test_worker_that_was_on_its_way_out_may_be_lost_once_the_training_has_ended() -> None:
    found = begun(Host("a", 1), Host("b", 1), ranks_min=1)
    found.change_hosts([Host("a", 1)])
    found.decide(5.0, is_start_over=True)
    found.is_free(0)
    found.is_free(1)
    assert found.decide(6.0, is_start_over=True)
    found.ended(0, 0, 7.0)

    found.host_ended("b", 255, 8.0)
    assert found.is_finished
