"""One collective that was asked for, from its submission to its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod.common.exceptions import HorovodInternalError, InvalidRequestError
from horovod.engine.agreement import Key, Request


class Repeat:
    """A name that the ranks have agreed on. While it is asked for as it was then, it is a bit.

    Attributes:
        signature: what must be unchanged for the agreement to hold.
        bit: of the name.
        asked: the arguments of an all-reduce in place of one tensor, but for tensor and name.
        shape: of its tensor.
        dtype: of its tensor.
    """

    __slots__ = ("asked", "bit", "dtype", "key", "shape", "signature")
    asked: tuple[Any, ...]
    shape: Any
    dtype: Any

    def __init__(self, key: Key, bit: int, signature: Any) -> None:
        self.key = key
        self.bit = bit
        self.signature = signature


class Entry:
    """A collective in flight; what the asynchronous functions return as a handle.

    Attributes:
        key: what it is negotiated by.
        signature: what must be unchanged for the ranks' earlier agreement to hold.
        request: makes what is told to the others when it does not hold.
        inputs: tensors to read; kept alive until the result is there.
        outputs: tensors to write, for those kinds whose result has the shape of the input.
        repeat: the agreement that holds, None where there is none.
        asked: see `Repeat`; None for other kinds.
        event: after which a GPU has written the inputs, None on CPUs.
        is_done: result or error is there.
        invalid: the error is one of the request itself.
    """

    repeat: Repeat | None = None
    asked: tuple[Any, ...] | None = None
    event: Any = None
    is_done = False
    error = ""
    invalid = False
    result: Any = None
    key: Any
    signature: Any
    request: Callable[[], Request]
    inputs: Any
    outputs: Any

    def __init__(
        self,
        key: Key,
        signature: Any,
        request: Callable[[], Request],
        inputs: Any,
        outputs: Any,
        shape_result: Any,
    ) -> None:
        self.key = key
        self.signature = signature
        self.request = request
        self.inputs = inputs
        self.outputs = outputs
        self._shape_result = shape_result

    def outcome(self) -> Any:
        """Return the result.

        Raises:
            HorovodInternalError: there is none.
        """
        if self.error:
            raise (InvalidRequestError if self.invalid else HorovodInternalError)(self.error)
        return self.result

    def finish(self, result: Any) -> None:
        """Note the result: a list of tensors, or what the kind has."""
        self.result = self._shape_result(result) if self._shape_result is not None else result
        self.inputs = self.outputs = None


class Again(Entry):
    """An all-reduce of one tensor in place, asked for as before: its result is the tensor."""

    repeat: Repeat

    def __init__(self, repeat: Repeat, tensor: Any) -> None:
        self.repeat = repeat
        self.result = tensor

    def __getattr__(self, name: str) -> Any:
        if name in ("key", "signature", "asked"):
            return getattr(self.repeat, name)
        if name in ("inputs", "outputs"):
            return (self.result,)
        raise AttributeError(name)

    def finish(self, result: Any) -> None:
        """Note nothing: the result is there."""
