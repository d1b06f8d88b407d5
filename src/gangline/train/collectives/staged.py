"""The collectives in pieces that fit the processor's cache: a node in its memory, nodes over a wire.

Each goes piece by piece through the rooms of the nodes' memory::

    produce piece k  |  barrier  |  the wire takes piece k  |  consume piece k - lag

On one node there is no wire and no lag. With several, the first rank of each node keeps the wire busy with up
to LAG pieces while the node goes on with the next ones. Rooms and boxes are taken in turn over all
collectives, so that one barrier a piece is enough: what is written now was last read before the barrier
before. Every number is put together by one rank of a node only, in the order of the ranks, and the nodes'
results by gloo in the order of the nodes: all ranks end with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline.train.collectives.memory import Memory, MismatchError
from gangline.train.collectives.parts import Parts, Whole

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Adder = Callable[[list[Array], Array], None]

LAG = 4
"""Pieces on the wire at once."""
WIRE_PIECES = 20
"""A tensor goes between nodes in so many pieces, or more: else the wire is idle at its begin and end."""
WIRE_PIECE_BYTES_MIN = 1 << 17
"""Below it what the nodes' ranks do for each piece takes as long as 1 Gbit/s does."""
SMALL_BYTES_MAX = 1 << 16
"""Of all ranks together: what one rank puts together faster than the ranks wait for one another."""
_ALIGNED = 16


@dataclass(frozen=True, slots=True)
class LeaderWire:
    """What the first ranks of the nodes do between nodes; each call returns what is to be waited for.

    The arrays are those of this node's memory and are changed in place. Roots are numbers of nodes.
    """

    reduce_all: Callable[[Array, Any, Any], Any]
    reduce: Callable[[Array, Any, Any, int], Any]
    broadcast: Callable[[Array, int], Any]
    barrier: Callable[[], Any]


def rooms_for(nodes: int) -> int:
    """Return how many rooms the memory of a node must have."""
    return (LAG if nodes > 1 else 0) + 2


@dataclass(frozen=True, slots=True)
class Reduction:
    """How numbers are put together.

    Attributes:
        dtype: of torch, for the wire.
        op: of torch, for the wire.
        add: within a node.
        finish: what is still to be done with the result of all nodes, in place.
    """

    dtype: Any
    op: Any
    add: Adder
    finish: Callable[[Array], None] | None


class StagedCollectives:
    """The collectives of one group; called by one thread at a time, on all ranks in the same order.

    Args:
        memory: of this rank's node.
        rank: in the group.
        nodes: the group's ranks of each node.
        wire: at the first rank of a node where there are several nodes.
    """

    def __init__(
        self, memory: Memory, rank: int, nodes: Sequence[Sequence[int]], wire: LeaderWire | None
    ) -> None:
        self.memory = memory
        self._rank, self._nodes, self._wire = rank, nodes, wire
        self.is_one_node = len(nodes) == 1
        self._lag = 0 if self.is_one_node else LAG
        self._node_of = {rank: number for number, ranks in enumerate(nodes) for rank in ranks}
        order = [rank for ranks in nodes for rank in ranks]
        self._place = [order.index(rank) for rank in range(len(order))]
        self._size = len(order)
        self._next_room = 0
        self._what = ""

    # The collectives ----------------------------------------------------------------------------------------

    def all_reduce(self, what: str, flat: Array, out: Array | None, how: Reduction) -> None:
        """Put the flat arrays of all ranks together into `out`, which may be `flat`; None wants no result.

        Cost: 25 MB in 3 to 5 ms for two ranks on two idle vCPUs (see benchmarks/collectives.py).
        """
        if self._size > 1:
            self.all_reduce_parts(what, Whole(flat, out), how)
        elif out is not None and out is not flat:
            out[:] = flat

    def all_reduce_parts(self, what: str, parts: Parts, how: Reduction) -> None:
        """Put the numbers of all ranks together, in place; nothing for a single rank."""
        if self._size == 1:
            return
        length, itemsize = parts.length, parts.dtype.itemsize
        if self.is_one_node and length * itemsize * self._size <= SMALL_BYTES_MAX:
            self._all_reduce_small(what, parts, how)
            return
        cuts = self._cuts(length, itemsize)
        memory = self.memory
        first = self._begin(what, ("all_reduce", str(how.dtype), str(how.op), length), turns=len(cuts))

        def box(k: int, peer: int) -> Array:
            return _view(memory.boxes[(first + k) % 2, peer], cuts[k], parts.dtype)

        def room(k: int) -> Array:
            return _view(memory.rooms[self._room_number(k)], cuts[k], parts.dtype)

        def post(k: int) -> None:
            parts.show(cuts[k], box(k, memory.rank), self._part(cuts[k].stop - cuts[k].start))

        def produce(k: int) -> None:
            own = self._part(cuts[k].stop - cuts[k].start)
            if own.start < own.stop:
                shown = [
                    parts.own(cuts[k], box(k, peer), own) if peer == memory.rank else box(k, peer)[own]
                    for peer in range(memory.size)
                ]
                how.add(shown, room(k)[own])
            if k + 1 < len(cuts):
                post(k + 1)

        def send(k: int) -> list[Any]:
            assert self._wire is not None
            return [self._wire.reduce_all(room(k), how.dtype, how.op)]

        post(0)
        self._meet_first()
        self._stages(len(cuts), produce, send, lambda k: parts.take(cuts[k], room(k), how.finish))

    def _all_reduce_small(self, what: str, parts: Parts, how: Reduction) -> None:
        """Let every rank put all together itself, which takes one barrier only."""
        memory, whole = self.memory, slice(0, parts.length)
        turn = self._begin(what, ("all_reduce", str(how.dtype), str(how.op), parts.length), turns=1)
        boxes = [_view(box, whole, parts.dtype) for box in memory.boxes[turn % 2]]
        parts.show(whole, boxes[memory.rank], slice(0, 0))
        self._meet_first()
        # A room that only this rank uses: its own box of the other turn.
        total = _view(memory.boxes[(turn + 1) % 2, memory.rank], whole, parts.dtype)
        how.add(boxes, total)
        parts.take(whole, total, None)

    def reduce_scatter(self, what: str, rows: Sequence[Array], out: Array, how: Reduction) -> None:
        """Put the ranks' arrays for each rank together; this rank gets those for it."""
        import numpy as np

        rows = [*rows]
        if np.may_share_memory(rows[self._rank], out):
            rows[self._rank] = rows[self._rank].copy()
        cuts = self._cuts(len(out), out.itemsize, rows=self._size)
        memory = self.memory
        first = self._begin(what, ("reduce_scatter", str(how.dtype), str(how.op), len(out)), turns=len(cuts))

        def post(k: int) -> None:
            box = memory.boxes[(first + k) % 2, memory.rank]
            for rank, row in enumerate(rows):
                if rank != self._rank or not self.is_one_node:
                    piece = row[cuts[k]]
                    _row(box, self._place[rank], piece)[:] = piece

        def add_own(k: int) -> None:
            own = rows[self._rank][cuts[k]]
            boxes = memory.boxes[(first + k) % 2]
            parts = [
                own if peer == memory.rank else _row(boxes[peer], self._place[self._rank], own)
                for peer in range(memory.size)
            ]
            how.add(parts, out[cuts[k]])

        if self.is_one_node:
            self._stages(len(cuts), post, None, add_own)
            return

        def produce(k: int) -> None:
            whole = np.empty(0, out.dtype)
            length = len(out[cuts[k]]) * self._size
            own = self._part(length)
            boxes = [
                memory.boxes[(first + k) % 2, peer, : length * whole.itemsize].view(out.dtype)[own]
                for peer in range(memory.size)
            ]
            room = memory.rooms[self._room_number(k), : length * whole.itemsize].view(out.dtype)
            how.add(boxes, room[own])
            if k + 1 < len(cuts):
                post(k + 1)

        def send(k: int) -> list[Any]:
            assert self._wire is not None
            blocks = self._blocks(k, out[cuts[k]])
            return [self._wire.reduce(block, how.dtype, how.op, node) for node, block in enumerate(blocks)]

        def consume(k: int) -> None:
            piece = out[cuts[k]]
            piece[:] = _row(memory.rooms[self._room_number(k)], self._place[self._rank], piece)
            if how.finish is not None:
                how.finish(piece)

        post(0)
        self._meet_first()
        self._stages(len(cuts), produce, send, consume)

    def all_gather(self, what: str, flat: Array, outs: Sequence[Array]) -> None:
        """Give every rank the arrays of all, in the order of the ranks; all have the same length."""
        cuts = self._cuts(len(flat), flat.itemsize, rows=self._size)
        rooms = self.memory.rooms

        def produce(k: int) -> None:
            piece = flat[cuts[k]]
            _row(rooms[self._room_number(k)], self._place[self._rank], piece)[:] = piece

        def send(k: int) -> list[Any]:
            assert self._wire is not None
            blocks = self._blocks(k, flat[cuts[k]])
            return [self._wire.broadcast(block, node) for node, block in enumerate(blocks)]

        def consume(k: int) -> None:
            room = rooms[self._room_number(k)]
            for rank, out in enumerate(outs):
                piece = out[cuts[k]]
                piece[:] = _row(room, self._place[rank], piece)

        self._begin(what, ("all_gather", flat.dtype.str, len(flat)), turns=1)
        self._stages(len(cuts), produce, send, consume)

    def broadcast(self, what: str, flat: Array, root: int) -> None:
        """Replace the flat arrays of all ranks by that of one."""
        cuts = self._cuts(len(flat), flat.itemsize)

        def produce(k: int) -> None:
            if self._rank == root:
                self._room(k, flat[cuts[k]])[:] = flat[cuts[k]]

        def send(k: int) -> list[Any]:
            assert self._wire is not None
            return [self._wire.broadcast(self._room(k, flat[cuts[k]]), self._node_of[root])]

        def consume(k: int) -> None:
            if self._rank != root:
                flat[cuts[k]] = self._room(k, flat[cuts[k]])

        self._begin(what, ("broadcast", flat.dtype.str, len(flat), root), turns=1)
        self._stages(len(cuts), produce, send, consume)

    def all_to_all(self, what: str, ins: Sequence[Array], outs: Sequence[Array]) -> None:
        """Give every rank the array that each has for it; of one node only, arrays of uint8.

        Raises:
            MismatchError: on all ranks, when one sends what another does not expect.
        """
        import numpy as np

        assert self.is_one_node, "gloo does it between nodes"
        sizes = np.array([len(one) for one in [*ins, *outs]])
        all_sizes = np.empty((self._size, len(sizes)), sizes.dtype)
        self.all_gather(what, sizes, [*all_sizes])
        sent, wanted = all_sizes[:, : self._size], all_sizes[:, self._size :].T
        if (wrong := np.argwhere(sent != wanted)).size:
            source, target = (int(one) for one in wrong[0])
            raise MismatchError(
                f"rank {source} sends {sent[source, target]} bytes to rank {target} in {what}, which wants "
                f"{wanted[source, target]}",
                hint="the splits of the ranks must fit each other",
            )
        cuts = self._cuts(int(sent.max()), 1, rows=self._size)
        memory, width = self.memory, self._share(1)
        first = self._begin(what, ("all_to_all",), turns=len(cuts))

        def produce(k: int) -> None:
            box = memory.boxes[(first + k) % 2, memory.rank]
            for rank, one in enumerate(ins):
                piece = one[cuts[k]]
                box[rank * width : rank * width + len(piece)] = piece

        def consume(k: int) -> None:
            boxes, start = memory.boxes[(first + k) % 2], self._rank * width
            for rank, one in enumerate(outs):
                piece = one[cuts[k]]
                piece[:] = boxes[rank, start : start + len(piece)]

        self._stages(len(cuts), produce, None, consume)

    def barrier(self, what: str) -> None:
        """Return when all ranks are here."""
        self._begin(what, ("barrier",), turns=1)
        self._meet_first()
        if self._wire is not None:
            with self.memory.abroad():
                self._wire.barrier().wait()
        if not self.is_one_node:
            self.memory.barrier(what)

    # In pieces ----------------------------------------------------------------------------------------------

    def _begin(self, what: str, signature: tuple[Any, ...], *, turns: int) -> int:
        """Say what this rank comes to; return the first of the turns that it takes of the boxes."""
        # crc32: the same in every process, unlike hash().
        from zlib import crc32

        self._what = what
        self._entered = self.memory.turn
        self.memory.enter(crc32(repr(signature).encode()))
        self.memory.turn += turns
        return self._entered

    def _meet_first(self) -> None:
        self.memory.barrier(self._what)
        self.memory.check_same(self._what, self._entered)
        self._entered = -1

    def _stages(
        self,
        count: int,
        produce: Callable[[int], None],
        send: Callable[[int], list[Any]] | None,
        consume: Callable[[int], None],
    ) -> None:
        lag = self._lag if send else 0
        works: list[list[Any]] = []
        has_wire = self._wire is not None and send is not None
        for k in range(count + lag):
            if k < count:
                produce(k)
            if has_wire and k >= lag:
                with self.memory.abroad():
                    for work in works[k - lag]:
                        work.wait()
            if self._entered >= 0:
                self._meet_first()
            else:
                self.memory.barrier(self._what)
            if has_wire and k < count:
                assert send is not None
                works.append(send(k))
            if k >= lag:
                consume(k - lag)
        self._next_room += count

    def _room_number(self, k: int) -> int:
        return (self._next_room + k) % len(self.memory.rooms)

    def _room(self, k: int, like: Array) -> Array:
        return self.memory.rooms[self._room_number(k), : like.nbytes].view(like.dtype)

    def _part(self, length: int) -> slice:
        """Return which part of a piece this rank puts together; parts begin on cache lines where they can."""
        share = -(-length // self.memory.size)
        share = -(-share // _ALIGNED) * _ALIGNED
        rank = self.memory.rank
        return slice(min(length, rank * share), min(length, (rank + 1) * share))

    def _share(self, itemsize: int) -> int:
        """Return how many elements of each rank go through a room at once."""
        return max(1, self.memory.piece_bytes // itemsize // self._size // _ALIGNED * _ALIGNED)

    def _cuts(self, length: int, itemsize: int, *, rows: int = 1) -> list[slice]:
        """Return the pieces of an array, of which a room takes that many rows at once.

        Between nodes there are enough of them for the wire to be busy. One for an empty array, for its ranks
        still meet.
        """
        most = self.memory.piece_bytes // itemsize if rows == 1 else self._share(itemsize)
        if not self.is_one_node:
            least = max(1, WIRE_PIECE_BYTES_MIN // itemsize // rows // _ALIGNED * _ALIGNED)
            share = -(-length // WIRE_PIECES)
            most = min(most, max(least, -(-share // _ALIGNED) * _ALIGNED))
        return [slice(start, min(start + most, length)) for start in range(0, max(length, 1), most)]

    def _blocks(self, k: int, like: Array) -> list[Array]:
        """Return the rows of each node in a room."""
        room = self.memory.rooms[self._room_number(k), : like.nbytes * self._size].view(like.dtype)
        blocks, start = [], 0
        for ranks in self._nodes:
            stop = start + len(like) * len(ranks)
            blocks.append(room[start:stop])
            start = stop
        return blocks


def _view(memory: Array, cut: slice, dtype: Any) -> Array:
    return memory[: (cut.stop - cut.start) * dtype.itemsize].view(dtype)


def _row(memory: Array, place: int, like: Array) -> Array:
    return memory[place * like.nbytes : (place + 1) * like.nbytes].view(like.dtype)


def _nothing(_: int) -> None:
    pass
