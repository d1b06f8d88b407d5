"""What the first ranks of the nodes exchange over gloo: by its collectives, directly between two nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import AllreduceOptions, BroadcastOptions, ReduceOptions

from gangline.train.collectives.reductions import adder_for, without_average
from gangline.train.collectives.staged import LeaderWire

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def gloo_wire(leaders: Any) -> LeaderWire:
    """Return gloo's collectives between the first ranks of any number of nodes."""

    def tensor(array: Array, dtype: Any) -> Any:
        found = torch.from_numpy(array)
        return found.view(dtype) if dtype.itemsize == found.itemsize else found

    def reduce_all(array: Array, dtype: Any, op: Any) -> Any:
        options = AllreduceOptions()
        options.reduceOp = without_average(op)
        return leaders.allreduce([tensor(array, dtype)], options)

    def reduce(array: Array, dtype: Any, op: Any, root: int) -> Any:
        options = ReduceOptions()
        options.reduceOp, options.rootRank = without_average(op), root
        return leaders.reduce([tensor(array, dtype)], options)

    def broadcast(array: Array, root: int) -> Any:
        options = BroadcastOptions()
        options.rootRank = root
        return leaders.broadcast([torch.from_numpy(array.view("u1"))], options)

    return LeaderWire(reduce_all, reduce, broadcast, leaders.barrier)


def pair_wire(leaders: Any, own: int) -> LeaderWire:
    """Return what two nodes send each other; half as many steps as gloo's, and fewer bytes for `reduce`.

    Args:
        leaders: gloo between the two.
        own: number of this node, 0 or 1.
    """
    other, tags = 1 - own, itertools.count()

    def sent(array: Array, tag: int) -> Any:
        return leaders.send([torch.from_numpy(array.view("u1"))], other, tag)

    def added(array: Array, dtype: Any, op: Any, tag: int, before: list[Any]) -> _Exchange:
        got = torch.empty(array.nbytes, dtype=torch.uint8)
        works = [*before, leaders.recv([got], other, tag)]
        both = [array, got.numpy().view(array.dtype)]
        return _Exchange(works, lambda: adder_for(dtype, op, 1)(both if own == 0 else both[::-1], array))

    def reduce_all(array: Array, dtype: Any, op: Any) -> Any:
        tag = next(tags)
        return added(array, dtype, op, tag, [sent(array, tag)])

    def reduce(array: Array, dtype: Any, op: Any, root: int) -> Any:
        tag = next(tags)
        return added(array, dtype, op, tag, []) if own == root else sent(array, tag)

    def broadcast(array: Array, root: int) -> Any:
        tag = next(tags)
        return (
            sent(array, tag)
            if own == root
            else leaders.recv([torch.from_numpy(array.view("u1"))], other, tag)
        )

    return LeaderWire(reduce_all, reduce, broadcast, leaders.barrier)


class _Exchange:
    """What is under way, and what is to be done with what came."""

    def __init__(self, works: list[Any], then: Callable[[], None]) -> None:
        self._works, self._then = works, then

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        self._then()
