"""allgather, broadcast and alltoall, with and without waiting, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.engine import job
from horovod.engine.agreement import ALLGATHER, ALLREDUCE, ALLTOALL, AVERAGE, BROADCAST
from horovod.torch.submission import submit, synchronize


def _first(tensors: list[Any]) -> Any:
    return tensors[0]


def _average(tensors: Sequence[Any], process_set: ProcessSet) -> list[Any]:
    """Return the averages of tensors over the ranks."""
    inputs = [tensor.contiguous() for tensor in tensors]
    outputs = [torch.empty_like(tensor) for tensor in inputs]
    averages: list[Any] = synchronize(submit(ALLREDUCE, inputs, outputs, None, process_set, list, op=AVERAGE))
    return averages


# allgather --------------------------------------------------------------------------------------------------


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Begin to join the tensors of all ranks along the first dimension, in the order of the ranks.

    Args:
        tensor: contiguous; the first dimension may differ between ranks, the others and the type may not.
        name: by which the ranks find each other's.
        process_set: ranks that take part.
    """
    return submit(ALLGATHER, (tensor,), None, name, process_set, _first)


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """As `allgather_async` for several tensors; `synchronize` returns a list."""
    return submit(ALLGATHER, list(tensors), None, name, process_set, list)


class _Allgather(torch.autograd.Function):
    """The gradient is this rank's rows of the averaged gradient, as Horovod has it."""

    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: Any) -> Any:
        ctx.process_set = process_set
        ctx.rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        return tuple(synchronize(grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        averages = _average(gradients, ctx.process_set)
        own = torch.tensor([ctx.rows])
        everyone = synchronize(allgather_async(own, process_set=ctx.process_set))
        place = ctx.process_set.rank()
        begins = everyone[:place].sum(dim=0).tolist()
        parts = [
            one.narrow(0, begin, rows) for one, begin, rows in zip(averages, begins, ctx.rows, strict=True)
        ]
        return None, None, *parts


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Return the tensors of all ranks joined along the first dimension; gradients flow back."""
    return _Allgather.apply(name, process_set, tensor)[0]


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """As `allgather` for several tensors."""
    return list(_Allgather.apply(name, process_set, *tensors))


# broadcast --------------------------------------------------------------------------------------------------


def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Begin to send one rank's tensor to all.

    Args:
        tensor: contiguous, of the same shape and type on all ranks.
        root_rank: whose it is: a rank of the whole job, inside a process set too.
        name: by which the ranks find each other's.
        process_set: ranks that take part.
    """
    outputs = (torch.empty_like(tensor),)
    return submit(BROADCAST, (tensor,), outputs, name, process_set, _first, root=root_rank)


def broadcast_async_(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """As `broadcast_async`, into the tensor itself."""
    tensors = (tensor,)
    return submit(BROADCAST, tensors, tensors, name, process_set, _first, root=root_rank)


def broadcast_(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Put one rank's tensor into this one, and return it."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    """The averaged gradient lands on the root, zeros elsewhere: Horovod's rule, though a sum would be
    exact.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (average,) = _average([gradient], ctx.process_set)
        if job.current().topology.rank != ctx.root_rank:
            average = torch.zeros_like(average)
        return average, None, None, None


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return one rank's tensor on all; gradients flow back."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


# alltoall ---------------------------------------------------------------------------------------------------


def _split_sizes(splits: Any) -> tuple[int, ...]:
    if splits is None:
        return ()
    if isinstance(splits, torch.Tensor):
        if splits.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"alltoall: splits are whole numbers (int32), not {splits.dtype}")
        if splits.dim() != 1:
            raise ValueError(
                f"alltoall: splits are one number for each rank, not a tensor of {splits.dim()}D"
            )
        splits = splits.tolist()
    return tuple(int(split) for split in splits)


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Begin to send rows to every rank and receive rows of every rank.

    Args:
        tensor: contiguous; the first dimension may differ between ranks.
        splits: rows for each rank, int32 on any device, in sum at most the first dimension; None for equal
            parts.
        name: by which the ranks find each other's.
        process_set: ranks that take part.

    Returns:
        A handle, for the joined rows and how many came from each rank.
    """
    device = splits.device if isinstance(splits, torch.Tensor) else "cpu"

    def pair(result: tuple[Any, list[int]]) -> tuple[Any, Any]:
        output, received = result
        return output, torch.tensor(received, dtype=torch.int32, device=device)

    return submit(ALLTOALL, (tensor,), None, name, process_set, pair, splits=_split_sizes(splits))


class _Alltoall(torch.autograd.Function):
    """The gradient goes back by the way that the rows came."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
        output, received = synchronize(alltoall_async(tensor, splits, name, process_set))
        ctx.process_set, ctx.received = process_set, received
        ctx.unsent = tensor.shape[0] - sum(_split_sizes(splits)) if splits is not None else 0
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: Any, _: Any) -> Any:
        handle = alltoall_async(gradient.contiguous(), ctx.received, process_set=ctx.process_set)
        result, _ = synchronize(handle)
        if ctx.unsent:
            result = torch.cat([result, result.new_zeros((ctx.unsent, *result.shape[1:]))])
        return result, None, None, None


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the rows that all ranks sent here; with splits the pair of them and their counts by rank."""
    output, received = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)
