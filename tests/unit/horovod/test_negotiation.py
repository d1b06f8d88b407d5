"""The coordinator: which names are ready, what the ranks agree on, and what they are told where they do
not.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from horovod.engine.agreement import (
    ADD_SET,
    ALLGATHER,
    ALLREDUCE,
    JOIN,
    LEAVE,
    REMOVE_SET,
    Request,
    dump,
    load_requests,
)
from horovod.engine.batches import make_batches
from horovod.engine.negotiation import Coordinator, Decision, set_bits

GRADIENT = Request("w", ALLREDUCE, dtypes=("float32",), shapes=((3,),), keep=True)


def agreed(coordinator: Coordinator, *requests: Request) -> Decision:
    """Let every rank ask, and return what the last one leads to."""
    for rank, request in enumerate(requests):
        decision = coordinator.receive(rank, 0, [request])
    return decision


def test_a_name_is_ready_when_the_last_rank_asks_for_it() -> None:
    coordinator = Coordinator(3, 10)

    assert not coordinator.receive(0, 0, [GRADIENT])
    assert not coordinator.receive(2, 0, [GRADIENT])
    decision = coordinator.receive(1, 0, [GRADIENT])

    assert [made.request.name for made in decision.agreements] == ["w"]
    assert decision.agreements[0].error == ""


def test_a_remembered_name_is_a_bit() -> None:
    coordinator = Coordinator(2, 10)
    number = agreed(coordinator, GRADIENT, GRADIENT).agreements[0].number

    assert not coordinator.receive(1, 1 << number, [])
    assert coordinator.receive(0, 1 << number, []) == Decision(1 << number)


def test_beyond_the_capacity_nothing_is_remembered() -> None:
    coordinator = Coordinator(2, 1)
    agreed(coordinator, GRADIENT, GRADIENT)
    other = replace(GRADIENT, name="other")

    assert agreed(coordinator, other, other).agreements[0].number == -1


def test_a_shape_that_changed_on_one_rank_is_an_error() -> None:
    coordinator = Coordinator(2, 10)
    number = agreed(coordinator, GRADIENT, GRADIENT).agreements[0].number
    coordinator.receive(0, 1 << number, [])

    decision = coordinator.receive(1, 0, [replace(GRADIENT, shapes=((4,),))])

    assert "mismatched shapes" in decision.agreements[0].error


def test_a_shape_that_changed_on_all_ranks_is_agreed_anew() -> None:
    coordinator = Coordinator(2, 10)
    agreed(coordinator, GRADIENT, GRADIENT)
    larger = replace(GRADIENT, shapes=((4,),))

    (made,) = agreed(coordinator, larger, larger).agreements

    assert (made.error, made.request.shapes) == ("", ((4,),))


def test_rows_of_all_ranks_are_told() -> None:
    short, long = (replace(GRADIENT, kind=ALLGATHER, shapes=((rows, 2),)) for rows in (1, 5))

    assert agreed(Coordinator(2, 10), short, long).agreements[0].rows == ((1,), (5,))


def test_a_rank_that_joined_is_waited_for_no_more() -> None:
    coordinator = Coordinator(2, 10)
    coordinator.receive(1, 0, [Request(JOIN, JOIN)])

    assert coordinator.receive(0, 0, [GRADIENT]).agreements[0].error == ""
    (made,) = coordinator.receive(0, 0, [Request(JOIN, JOIN)]).agreements
    assert made.answer == 0  # the last one


def test_a_rank_that_left_is_an_error_for_who_waits_and_who_comes_later() -> None:
    coordinator = Coordinator(2, 10)
    number = agreed(coordinator, GRADIENT, GRADIENT).agreements[0].number
    coordinator.receive(0, 1 << number, [])

    (waiting,) = coordinator.receive(1, 0, [Request("ended", LEAVE)]).agreements
    (later,) = coordinator.receive(0, 0, [replace(GRADIENT, name="later")]).agreements

    assert "rank 1 ended" in waiting.error
    assert "rank 1 ended" in later.error


def test_who_is_waited_for_is_known() -> None:
    coordinator = Coordinator(3, 10)
    coordinator.receive(1, 0, [GRADIENT])

    assert coordinator.waiting() == {"w": [0, 2]}


def test_requests_survive_the_wire() -> None:
    assert load_requests(dump([GRADIENT])) == [GRADIENT]
    assert list(set_bits(0b10110)) == [1, 2, 4]


def test_batches_keep_to_the_threshold_and_to_one_type() -> None:
    coordinator = Coordinator(1, 100)
    requests = [replace(GRADIENT, name=str(i)) for i in range(5)]
    requests.insert(2, replace(GRADIENT, name="half", dtypes=("float16",)))
    made = coordinator.receive(0, 0, requests).agreements

    batches = make_batches(made, fusion_bytes=36)

    names = [[one.request.name for one in batch.agreements] for batch in batches]
    assert names == [["0", "1", "2"], ["half"], ["3", "4"]]


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
def test_what_waits_for_a_process_set_that_is_removed_is_an_error(is_known: bool, is_late: bool) -> None:
    coordinator = Coordinator(3, 10)
    (added,) = agreed(coordinator, *[Request("add", ADD_SET, splits=(0, 1))] * 3).agreements
    inside = replace(GRADIENT, process_set=added.answer)
    number = agreed(coordinator, inside, inside).agreements[0].number
    message = (1 << number, []) if is_known else (0, [inside])
    remove = [Request("remove", REMOVE_SET, root=added.answer)]

    decisions = [] if is_late else [coordinator.receive(0, *message)]
    decisions += [coordinator.receive(rank, 0, remove) for rank in (0, 1, 2)]
    decisions += [coordinator.receive(0, *message)] if is_late else []

    made = [one for decision in decisions for one in decision.agreements]
    errors = {one.request.name: one.error for one in made}
    assert errors == {"remove": "", "w": f"allreduce w: process set {added.answer} was removed"}
    assert coordinator.waiting() == {}
