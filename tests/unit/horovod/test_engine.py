"""The engine of one rank, with a coordinator that the test plays: which agreement a name goes by."""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from horovod.common.exceptions import HorovodInternalError
from horovod.engine.agreement import ALLREDUCE, Agreement, Request
from horovod.engine.collectives import Group
from horovod.engine.engine import Engine
from horovod.engine.entry import Entry, Repeat
from horovod.engine.negotiation import Decision
from horovod.engine.settings import Settings
from horovod.engine.timeline import Timeline

LIMIT_S = 10.0
SMALL = Request("w", ALLREDUCE, dtypes=("float32",), shapes=((3,),), keep=True)
LARGE = replace(SMALL, shapes=((4,),))


class Link:
    """The way to a coordinator that says what a test puts into it."""

    def __init__(self) -> None:
        self.sent: queue.SimpleQueue[tuple[int, list[Request]]] = queue.SimpleQueue()
        self.decisions: queue.SimpleQueue[Decision | None] = queue.SimpleQueue()
        self.is_broken = False

    def send(self, bits: int, requests: list[Request]) -> None:
        if self.is_broken:
            raise OSError("gone")
        self.sent.put((bits, requests))

    def receive(self) -> Decision | None:
        return self.decisions.get(timeout=LIMIT_S)

    def close(self) -> None:
        self.decisions.put(None)

    def next(self) -> tuple[int, list[Request]]:
        return self.sent.get(timeout=LIMIT_S)


class Collectives:
    """Says which tensors met which agreements."""

    def __init__(self) -> None:
        self.groups = {0: Group((0, 1), 0)}
        self.done: list[tuple[Any, Any]] = []

    def run(self, batch: Any, entries: list[Entry | None]) -> None:
        for made, entry in zip(batch.agreements, entries, strict=True):
            self.done.append((made.request.shapes[0], entry and entry.inputs[0].shape))
            if entry is not None:
                entry.finish(None)


class Rank:
    def __init__(self) -> None:
        self.link, self.collectives = Link(), Collectives()
        self.engine = Engine(self.link, self.collectives, Settings(cycle_s=0.0), lambda _: None, Timeline())

    def entry(self, request: Request, signature: Any = None) -> Entry:
        tensor = SimpleNamespace(shape=request.shapes[0], dtype="float32")
        made = Entry(request.key, signature or request.shapes, lambda: request, (tensor,), (tensor,), None)
        made.asked = ("options",)
        return made

    def agree(self, request: Request) -> None:
        self.link.decisions.put(Decision(agreements=(Agreement(request, number=0),)))

    def do(self, request: Request) -> None:
        """Have a collective done as a whole request."""
        entry = self.engine.submit(self.entry(request))
        self.agree(request)
        self.engine.wait(entry)


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_grad_enabled=lambda _: None))
    made = Rank()
    yield made
    made.engine.close()


class Meanwhile:
    """A signature that lets something happen before it is compared for the first time."""

    def __init__(self, signature: Any, happen: Callable[[], object]) -> None:
        self._signature, self._happen = signature, happen

    def __eq__(self, other: object) -> bool:
        happen, self._happen = self._happen, lambda: None
        happen()
        return bool(self._signature == other)

    __hash__ = None  # type: ignore[assignment]


def test_a_name_that_is_asked_for_again_is_a_bit_until_its_shape_changes(rank: Rank) -> None:
    rank.do(SMALL)
    assert rank.link.next() == (0, [SMALL])

    for _ in range(2):
        entry = rank.engine.submit(rank.entry(SMALL))
        assert rank.link.next() == (1, [])
        rank.link.decisions.put(Decision(bits=1))
        rank.engine.wait(entry)
    rank.do(LARGE)
    assert rank.link.next() == (0, [LARGE])


def test_a_name_goes_by_no_agreement_that_was_made_anew_while_it_was_submitted(rank: Rank) -> None:
    rank.do(SMALL)
    other = rank.engine.submit(rank.entry(LARGE))

    def finish_other() -> None:
        rank.agree(LARGE)
        rank.engine.wait(other)

    with pytest.raises(ValueError, match="in flight"):  # of two threads one is late
        rank.engine.submit(rank.entry(SMALL, Meanwhile(SMALL.shapes, finish_other)))
    finish_other()
    entry = rank.engine.submit(rank.entry(SMALL))
    rank.agree(SMALL)
    rank.engine.wait(entry)

    assert all(agreed == given for agreed, given in rank.collectives.done)


def test_a_short_way_that_was_looked_up_before_is_not_gone_when_the_agreement_is_another(rank: Rank) -> None:
    rank.do(SMALL)
    before = rank.engine.repeats["w"]
    assert isinstance(before, Repeat)
    rank.do(LARGE)

    assert rank.engine.submit_again(before, SimpleNamespace(shape=(3,))) is None
    rank.do(SMALL)  # the name is free


def test_nothing_is_taken_after_a_failure(rank: Rank) -> None:
    rank.do(SMALL)
    before = rank.engine.repeats["w"]
    rank.engine.give_up(RuntimeError("a rank was lost"))

    assert rank.engine.submit_again(before, SimpleNamespace(shape=(3,))) is None
    for _ in range(2):
        with pytest.raises(HorovodInternalError, match="a rank was lost"):
            rank.engine.submit(rank.entry(SMALL))


def test_a_rank_that_has_failed_gives_no_zeros_to_what_others_do(rank: Rank) -> None:
    entry = rank.engine.submit(rank.entry(SMALL))
    rank.engine.give_up(RuntimeError("the coordinator is gone"))
    rank.agree(SMALL)
    with pytest.raises(HorovodInternalError, match="the coordinator is gone"):
        rank.engine.wait(entry)
    rank.engine.close()

    assert rank.collectives.done == []
