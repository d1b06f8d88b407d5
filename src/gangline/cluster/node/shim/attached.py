"""Who watches a container's output besides its log, from the moment that it attaches.

Nothing is dropped for one that reads slowly: the container's output is not read meanwhile, so that it waits
as well. One that does not read at all for a while is let go of, for a program must not wait for it for ever.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping

PATIENCE_S = 30.0
"""How long a program's output waits for one that does not read, a stopped terminal for example."""


class Attached:
    """One who watches.

    Args:
        selector: of the shim's loop.
        outputs: where to write, by stream; closed at the end.
        told: called once, when all was written after ``end``, or nobody reads any more.
        caught_up: called when it is behind no longer.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        outputs: Mapping[bytes, int],
        told: Callable[[], object],
        caught_up: Callable[[], object],
    ) -> None:
        self._selector = selector
        self._outputs = dict(outputs)
        self._told = told
        self._caught_up = caught_up
        self._pending: dict[bytes, bytearray] = {}
        self._is_ending = False
        self.gives_up_at = 0.0
        for descriptor in self._outputs.values():
            os.set_blocking(descriptor, False)

    @property
    def is_behind(self) -> bool:
        """Whether it has not taken all that it was given."""
        return bool(self._pending)

    @property
    def is_over(self) -> bool:
        """Whether it takes nothing any more."""
        return not self._outputs

    def give(self, stream: bytes, chunk: bytes) -> None:
        """Write a piece of output; what does not fit waits."""
        descriptor = self._outputs.get(stream)
        if descriptor is None:
            return
        if stream in self._pending:
            self._pending[stream] += chunk
            return
        left = self._write(descriptor, chunk)
        if left is None:
            self.drop()
        elif left:
            self._pending[stream] = bytearray(left)
            self.gives_up_at = time.monotonic() + PATIENCE_S
            self._selector.register(descriptor, selectors.EVENT_WRITE, lambda: self._flush(stream))

    def end(self) -> None:
        """There is no more output."""
        self._is_ending = True
        if not self._pending:
            self.drop()

    def drop(self) -> None:
        """Let go of it."""
        outputs, self._outputs = self._outputs, {}
        for stream, descriptor in outputs.items():
            if stream in self._pending:
                self._selector.unregister(descriptor)
            os.close(descriptor)
        was_behind, self._pending = bool(self._pending), {}
        if outputs:
            self._told()
        if was_behind:
            self._caught_up()

    def _flush(self, stream: bytes) -> None:
        if stream not in self._pending:
            return
        left = self._write(self._outputs[stream], self._pending[stream])
        if left is None:
            self.drop()
        elif left:
            self._pending[stream] = bytearray(left)
        else:
            self._selector.unregister(self._outputs[stream])
            del self._pending[stream]
            if not self._pending:
                self._caught_up()
                if self._is_ending:
                    self.drop()
        self.gives_up_at = time.monotonic() + PATIENCE_S

    @staticmethod
    def _write(descriptor: int, chunk: bytes | bytearray) -> bytes | None:
        """Return what is left, None when nobody reads."""
        try:
            return bytes(chunk[os.write(descriptor, chunk) :])
        except BlockingIOError:
            return bytes(chunk)
        except OSError:
            return None
