"""What an all-reduce takes its numbers from and puts them into: one flat array, or many tensors as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gangline.train.collectives.memory import Memory, copy_ranges, ranges_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Finish = Callable[[Array], None] | None


class Parts(Protocol):
    """Numbers that go through boxes and rooms piece by piece.

    Attributes:
        length: how many there are.
        dtype: of numpy.
    """

    length: int
    dtype: Any

    def show(self, cut: slice, box: Array, own: slice) -> None:
        """Put a piece into this rank's box; what the rank puts together itself, `own` of it, may stay out."""

    def own(self, cut: slice, box: Array, own: slice) -> Array:
        """Return that part of a piece which this rank puts together, after `show` of it."""

    def take(self, cut: slice, room: Array, finish: Finish) -> None:
        """Take a piece of the result, and finish it."""


class Whole:
    """A flat array.

    Args:
        flat: of which numbers are taken.
        out: that the result goes into, which may be `flat`; None wants none.
    """

    def __init__(self, flat: Array, out: Array | None) -> None:
        self._flat, self._out = flat, out
        self.length, self.dtype = len(flat), flat.dtype

    def show(self, cut: slice, box: Array, own: slice) -> None:
        """Put what others put together into the box."""
        piece = self._flat[cut]
        box[: own.start] = piece[: own.start]
        box[own.stop :] = piece[own.stop :]

    def own(self, cut: slice, box: Array, own: slice) -> Array:
        """Return the part where it lies."""
        return self._flat[cut][own]

    def take(self, cut: slice, room: Array, finish: Finish) -> None:
        """Take a piece of the result."""
        if self._out is not None:
            piece = self._out[cut]
            piece[:] = room
            if finish is not None:
                finish(piece)


class Scattered:
    """Tensors that lie anywhere, one after the other: each piece is copied from and to its places.

    Args:
        tensors: contiguous, on the CPU, of one type.
        dtype: of numpy, of arrays of theirs.
        memory: that boxes and rooms are of.

    Cost: 0.4 µs a tensor, beside their bytes.
    """

    def __init__(self, tensors: Sequence[Any], dtype: Any, memory: Memory) -> None:
        import numpy as np

        self._tensors = tensors  # kept alive: only their addresses are used
        self._memory = memory
        self._places = np.array([one.data_ptr() for one in tensors], np.int64)
        sizes = np.array([one.nbytes for one in tensors], np.int64)
        self._ends = sizes.cumsum()
        self._begins = self._ends - sizes
        self.dtype = dtype
        self.length = int(self._ends[-1]) // dtype.itemsize

    def show(self, cut: slice, box: Array, own: slice) -> None:
        """Put the piece into the box."""
        self._memory.gather(box, *self._ranges(cut))

    def own(self, cut: slice, box: Array, own: slice) -> Array:
        """Return the part in the box."""
        return box[own]

    def take(self, cut: slice, room: Array, finish: Finish) -> None:
        """Take a piece of the result to its places."""
        if finish is None:
            self._memory.scatter(room, *self._ranges(cut))
            return
        own = room.copy()  # the ranks of a node share the room
        finish(own)
        places, sizes = self._ranges(cut)
        copy_ranges(places.tolist(), ranges_of(own, sizes), sizes.tolist())

    def _ranges(self, cut: slice) -> tuple[Array, Array]:
        """Return addresses and sizes of what a piece is made of, in bytes."""
        import numpy as np

        begin, end = cut.start * self.dtype.itemsize, cut.stop * self.dtype.itemsize
        some = slice(
            int(self._ends.searchsorted(begin, "right")), int(self._begins.searchsorted(end, "left"))
        )
        begins = np.maximum(self._begins[some], begin)
        sizes = np.minimum(self._ends[some], end) - begins
        return self._places[some] + (begins - self._begins[some]), sizes
