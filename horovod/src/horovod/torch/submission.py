"""From tensors and options to an entry of the engine; on the path of every gradient, so kept short."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
from horovod.engine import job
from horovod.engine.agreement import AVERAGE, BROADCAST, SUM, Request
from horovod.engine.entry import Entry

_DTYPES = {
    **{getattr(torch, name): name for name in ("uint8", "int8", "int16", "int32", "int64", "bool")},
    **{getattr(torch, name): name for name in ("float16", "bfloat16", "float32", "float64")},
}


def reduce_op(op: int | None, average: bool | None) -> int:
    """Return the op of a call that may use the old ``average=``.

    Raises:
        ValueError: both were given.
    """
    if average is None:
        return AVERAGE if op is None else op
    if op is not None:
        raise ValueError("`op` has replaced `average`: give one of them")
    warnings.warn("`average` has been replaced by `op`", DeprecationWarning, stacklevel=3)
    return AVERAGE if average else SUM


def submit(
    kind: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any] | None,
    name: str | None,
    process_set: ProcessSet,
    shape_result: Callable[[Any], Any],
    *,
    op: int = SUM,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = -1,
    splits: tuple[int, ...] = (),
    asked: tuple[Any, ...] | None = None,
) -> Entry:
    """Hand a collective to the engine.

    Args:
        kind: as in `horovod.engine.agreement`.
        outputs: tensors to write, or None where the result's shape is found out.
        name: None for the next automatic one.
        shape_result: makes what the user gets of what the engine has.
        asked: see `horovod.engine.entry.Repeat`.

    Raises:
        ValueError: a tensor is not contiguous or of a type that cannot be sent, or the name is in flight.
        HorovodInternalError: this rank is not in the process set, or the job has ended.
    """
    number = process_set.process_set_id
    engine = job.current().engine
    shapes, dtypes = [], []
    device = ""
    for tensor in inputs:
        if not tensor.is_contiguous():
            raise ValueError(f"{kind} {name or ''}: the tensor must be contiguous")
        shapes.append(tensor.shape)
        dtypes.append(tensor.dtype)
        kind_of = tensor.device.type
        if kind_of != device:
            device = f"{device}+{kind_of}" if device else kind_of
    if number != 0:
        _check_member(number, process_set)
    known_by = name if name is not None else engine.automatic_name(kind, number or 0)
    signature = (kind, op, prescale, postscale, root, splits, device, shapes, dtypes)

    def request() -> Request:
        return Request(
            known_by,
            kind,
            number or 0,
            tuple(_dtype_name(dtype) for dtype in dtypes),
            tuple(tuple(shape) for shape in shapes),
            *(device or "cpu", op, prescale, postscale, root, splits),
            keep=name is not None,
        )

    for dtype in dtypes:
        if dtype not in _DTYPES and kind != BROADCAST:
            raise ValueError(f"{kind} {name or ''}: tensors of type {dtype} cannot be sent")
    entry = Entry((number or 0, known_by), signature, request, inputs, outputs, shape_result)
    entry.asked = asked
    if "cuda" in device:
        entry.event = torch.cuda.current_stream(inputs[0].device).record_event()
    return engine.submit(entry)


def _dtype_name(dtype: Any) -> str:
    return _DTYPES.get(dtype) or str(dtype).removeprefix("torch.")


def _check_member(number: int | None, process_set: ProcessSet) -> None:
    if number is None:
        raise HorovodInternalError(
            f"{process_set} is in no job: give it to hvd.init() or hvd.add_process_set()"
        )
    if not process_set.included():
        rank = job.current().topology.rank
        raise HorovodInternalError(f"rank {rank} is not in the process set {process_set.ranks}")


def poll(handle: Any) -> bool:
    """Return whether a collective has ended, with a result or an error."""
    return bool(handle.is_done)


def synchronize(handle: Any) -> Any:
    """Wait for a collective and return its result.

    Raises:
        HorovodInternalError: the ranks do not agree, or one was lost.
    """
    if handle.is_done:
        return handle.outcome() if handle.error else handle.result
    return job.current().engine.wait(handle)
