"""reducescatter: every rank gets its rows of the reduced tensor; the first ranks get one more where
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.engine.agreement import ADASUM, AVERAGE, REDUCESCATTER, SUM
from horovod.torch.compression import Compression
from horovod.torch.exchanges import grouped_allgather
from horovod.torch.submission import submit, synchronize


def _first(tensors: list[Any]) -> Any:
    return tensors[0]


def _start(
    tensors: Sequence[Any],
    shape_result: Any,
    name: str | None,
    op: int,
    process_set: ProcessSet,
    scales: tuple[float, float],
) -> Any:
    if op == ADASUM:
        raise HorovodInternalError("reducescatter does not know Adasum")
    if any(tensor.dim() == 0 for tensor in tensors):
        raise HorovodInternalError("reducescatter: a tensor without dimensions has no rows to share")
    return submit(
        *(REDUCESCATTER, tensors, None, name, process_set, shape_result),
        op=op,
        prescale=scales[0],
        postscale=scales[1],
    )


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Begin to reduce a tensor and share its rows out; see `allreduce_async` for the arguments.

    Raises:
        HorovodInternalError: the tensor has no dimensions, or the op is Adasum.
    """
    return _start((tensor,), _first, name, op, process_set, (prescale_factor, postscale_factor))


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """As `reducescatter_async` for several tensors; `synchronize` returns a list."""
    return _start(list(tensors), list, name, op, process_set, (prescale_factor, postscale_factor))


class _Reducescatter(torch.autograd.Function):
    """The gradient is gathered from all ranks, times their number for Sum."""

    @staticmethod
    def forward(ctx: Any, name: str | None, options: tuple[Any, ...], *tensors: Any) -> Any:
        ctx.options = options
        return tuple(synchronize(grouped_reducescatter_async(tensors, name, *options)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        op, process_set, prescale, postscale = ctx.options
        factor = prescale * postscale * (process_set.size() if op == SUM else 1)
        scaled = [(gradient * factor if factor != 1 else gradient).contiguous() for gradient in gradients]
        return None, None, *grouped_allgather(scaled, process_set=process_set)


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """As `reducescatter` for several tensors."""
    smaller, contexts = zip(*map(compression.compress, tensors), strict=True)
    options = (op, process_set, prescale_factor, postscale_factor)
    reduced = _Reducescatter.apply(name, options, *smaller)
    return [compression.decompress(one, context) for one, context in zip(reduced, contexts, strict=True)]


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Return this rank's rows of the reduced tensor; gradients flow back."""
    options = (op, process_set, prescale_factor, postscale_factor)
    return grouped_reducescatter([tensor], name, compression, *options)[0]
