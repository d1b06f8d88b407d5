"""One collective that was asked for, from its submission to its result."""

from __future__ import annotations

from typing import Any

from horovod.common.exceptions import HorovodInternalError, InvalidRequestError
from horovod.engine.agreement import Key, Request


class Entry:
    """A collective in flight; what the asynchronous functions return as a handle.

    Attributes:
        key: what it is negotiated by.
        signature: what must be unchanged for the ranks' earlier agreement to hold.
        request: what is told to the others when it does not hold, made when needed.
        inputs: tensors to read; kept alive until the result is there.
        outputs: tensors to write, for those kinds whose result has the shape of the input.
        event: after which a GPU has written the inputs, None on CPUs.
        is_done: result or error is there.
        invalid: the error is one of the request itself.
    """

    __slots__ = (
        "error", "event", "inputs", "invalid", "is_done", "key", "outputs", "request", "result",
        "shape_result", "signature",
    )  # fmt: skip

    def __init__(
        self, key: Key, signature: Any, request: Any, inputs: Any, outputs: Any, shape_result: Any
    ) -> None:
        self.key = key
        self.signature = signature
        self.request = request
        self.inputs = inputs
        self.outputs = outputs
        self.shape_result = shape_result
        self.event: Any = None
        self.is_done = False
        self.error = ""
        self.invalid = False
        self.result: Any = None

    def full_request(self) -> Request:
        """Return what the other ranks must know."""
        return self.request()  # type: ignore[no-any-return]

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
        self.result = self.shape_result(result) if self.shape_result is not None else result
        self.inputs = self.outputs = None
