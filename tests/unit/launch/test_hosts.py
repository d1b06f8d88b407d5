"""Host lists, hostfiles and where ranks go; expected values are those of horovodrun's own rules."""

from __future__ import annotations

import pytest

from gangline.errors import UserError
from gangline.launch.hosts import Host, host_list, parse_hostfile, parse_hosts, plan_ranks


def test_hosts_have_slots_and_keep_their_order() -> None:
    assert parse_hosts("b:4,a:2") == [Host("b", 4), Host("a", 2)]


def test_a_host_without_slots_has_one_unless_slots_are_needed() -> None:
    assert parse_hosts("a,10.0.0.7:2") == [Host("a", 1), Host("10.0.0.7", 2)]
    with pytest.raises(UserError, match="`a` of the host list"):
        parse_hosts("a,b:2", need_slots=True)


@pytest.mark.parametrize("text", ["a:b", "a:0", "a:-1", "a b:2", "", ",", "a:2:3", "a/b:1"])
def test_malformed_host_lists_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_hosts(text)


def test_a_hostfile_of_horovod_is_read() -> None:
    assert host_list(parse_hostfile("172.31.32.7 slots=8\n172.31.33.9 slots=8\n")) == (
        "172.31.32.7:8,172.31.33.9:8"
    )


def test_blank_lines_comments_and_further_keys_of_a_hostfile_are_passed_over() -> None:
    text = "\n# the fast ones\nn1 slots=4 max_slots=8  # rack 1\n\n   \nn2 max_slots=9 slots=2\nn3:3\nn4\n"

    assert host_list(parse_hostfile(text)) == "n1:4,n2:2,n3:3,n4:1"


def test_a_malformed_line_of_a_hostfile_is_named() -> None:
    with pytest.raises(UserError) as raised:
        parse_hostfile("n1 slots=4\nn2 slots=many\n", "hosts.txt")

    assert raised.value.where == "hosts.txt:2"


def test_ranks_fill_host_after_host_and_stop_at_the_number_asked_for() -> None:
    """Upstream's gloo launcher starts one rank for every slot: eight ranks for `-np 2 -H a:4,b:4`."""
    assert [place.host for place in plan_ranks(parse_hosts("a:4,b:4"), 2)] == ["a", "a"]
    assert [place.host for place in plan_ranks(parse_hosts("a:4,b:4"), 6)] == ["a"] * 4 + ["b"] * 2


def test_places_of_unequal_hosts() -> None:
    """With hosts of 2 and 1 ranks: only the first host has local rank 1, so its cross size is 1."""
    places = plan_ranks(parse_hosts("a:2,b:1"), 3)

    assert [
        (p.rank, p.local_rank, p.local_size, p.cross_rank, p.cross_size, p.node_rank) for p in places
    ] == [
        (0, 0, 2, 0, 2, 0),
        (1, 1, 2, 0, 1, 0),
        (2, 0, 1, 1, 2, 1),
    ]


def test_more_ranks_than_slots_are_refused() -> None:
    with pytest.raises(UserError, match=r"9 ranks .* 8 slots: a:4,b:4"):
        plan_ranks(parse_hosts("a:4,b:4"), 9)
