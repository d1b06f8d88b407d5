"""allreduce in all its forms: one tensor or a group, new or in place, waiting or not, sparse."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.engine import job
from horovod.engine.agreement import ADASUM, ALLREDUCE, AVERAGE
from horovod.torch.compression import Compression
from horovod.torch.exchanges import allgather_async
from horovod.torch.submission import reduce_op, submit, synchronize


def _first(tensors: list[Any]) -> Any:
    return tensors[0]


def _check_adasum(process_set: ProcessSet) -> None:
    size = job.current().topology.size
    if process_set.process_set_id != 0:
        raise NotImplementedError("Adasum works on the global process set alone")
    if size & (size - 1):
        raise NotImplementedError(f"Adasum wants a power of two of ranks, not {size}")


def _start(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    shape_result: Callable[[Any], Any],
    name: str | None,
    op: int,
    scales: tuple[float, float],
    process_set: ProcessSet,
    asked: tuple[Any, ...] | None = None,
) -> Any:
    if op == ADASUM:
        _check_adasum(process_set)
    return submit(
        *(ALLREDUCE, inputs, outputs, name, process_set, shape_result),
        op=op,
        prescale=scales[0],
        postscale=scales[1],
        asked=asked,
    )


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Begin to reduce a tensor over the ranks; return a handle for `synchronize`.

    Args:
        tensor: contiguous, of the same shape and type on all ranks; it is not changed.
        average: older form of ``op``.
        name: by which the ranks find each other's; without one, the order of such calls counts.
        op: Average unless given; Sum, Adasum, Min, Max, Product.
        prescale_factor: multiplied before; whole numbers are scaled in float64 and cut off.
        postscale_factor: multiplied after.
        process_set: ranks that take part.

    Raises:
        ValueError: not contiguous, a type that cannot be sent, or the name is in flight.
        HorovodInternalError: in `synchronize`, on all ranks: they do not agree, or one was lost.
    """
    scales = (prescale_factor, postscale_factor)
    output = torch.empty_like(tensor)
    return _start((tensor,), (output,), _first, name, reduce_op(op, average), scales, process_set)


def allreduce_async_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As `allreduce_async`, into the tensor itself. Cost: 1 µs where a name is asked for as it was before."""
    asked = average, op, prescale_factor, postscale_factor, process_set
    engine = job.current().engine
    again = engine.repeats.get(name)
    if again is not None and (
        tensor.shape == again.shape
        and tensor.dtype is again.dtype
        and asked == again.asked
        and tensor.is_cpu
        and tensor.is_contiguous()
    ):
        entry = engine.submit_again(again, tensor)
        if entry is not None:
            return entry
    scales, tensors = (prescale_factor, postscale_factor), (tensor,)
    how = reduce_op(op, average)
    return _start(tensors, tensors, _first, name, how, scales, process_set, asked)


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce a tensor over the ranks into itself, and return it; see `allreduce_async`."""
    handle = allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    return synchronize(handle)


class _Allreduce(torch.autograd.Function):
    """The gradient of a reduction is the same reduction of the gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, name: str | None, *options: Any) -> Any:
        ctx.options = options
        return synchronize(allreduce_async(tensor, None, name, *options))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Allreduce.apply(gradient.contiguous(), None, *ctx.options), *[None] * 5


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce a tensor over the ranks; gradients flow back. See `allreduce_async` for the arguments."""
    smaller, context = compression.compress(tensor)
    options = (reduce_op(op, average), prescale_factor, postscale_factor, process_set)
    return compression.decompress(_Allreduce.apply(smaller, name, *options), context)


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As `allreduce_async` for tensors that are reduced together; `synchronize` returns a list."""
    scales, tensors = (prescale_factor, postscale_factor), list(tensors)
    outputs = [torch.empty_like(tensor) for tensor in tensors]
    return _start(tensors, outputs, list, name, reduce_op(op, average), scales, process_set)


def grouped_allreduce_async_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As `grouped_allreduce_async`, into the tensors themselves."""
    scales, tensors = (prescale_factor, postscale_factor), list(tensors)
    return _start(tensors, tensors, list, name, reduce_op(op, average), scales, process_set)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce tensors together, into themselves, and return them."""
    handle = grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    )
    return synchronize(handle)


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, options: tuple[Any, ...], *tensors: Any) -> Any:
        ctx.options = options
        return tuple(synchronize(grouped_allreduce_async(tensors, None, name, *options)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        whole = [gradient.contiguous() for gradient in gradients]
        return None, None, *_GroupedAllreduce.apply(None, ctx.options, *whole)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduce tensors together; gradients flow back. Returns a list in their order."""
    smaller, contexts = zip(*map(compression.compress, tensors), strict=True)
    options = (reduce_op(op, average), prescale_factor, postscale_factor, process_set)
    reduced = _GroupedAllreduce.apply(name, options, *smaller)
    return [compression.decompress(one, context) for one, context in zip(reduced, contexts, strict=True)]


def sparse_allreduce_async(
    tensor: Any, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], Any]:
    """Begin to reduce a sparse tensor: indices and values of all ranks are gathered, no rank sends zeros.

    Returns:
        A function that waits and returns the sparse result, not coalesced.
    """
    indices = allgather_async(
        tensor._indices().t().contiguous(), name=f"{name}.indices", process_set=process_set
    )
    values = allgather_async(tensor._values().contiguous(), name=f"{name}.values", process_set=process_set)

    def wait() -> Any:
        all_values, all_indices = synchronize(values), synchronize(indices)
        if op == AVERAGE:
            all_values = all_values / process_set.size()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invariants are checked where the gradient is used
            return torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.size(), device=tensor.device)

    return wait
