"""Carries batches out over torch.distributed, in the order that all ranks have agreed on.

Everything but reductions travels as bytes, so that every type does. torch is imported late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from horovod.engine.adasum import combine_all
from horovod.engine.agreement import (
    ADASUM,
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    AVERAGE,
    BROADCAST,
    MAX,
    MIN,
    PRODUCT,
    REDUCESCATTER,
    SUM,
    Agreement,
    Request,
)
from horovod.engine.batches import ALONE_BYTES, WIRE_DTYPES, Batch, Flat
from horovod.engine.entry import Again, Entry

_TORCH_OPS: Final = {AVERAGE: "AVG", SUM: "SUM", MIN: "MIN", MAX: "MAX", PRODUCT: "PRODUCT"}


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of a process set.

    Attributes:
        handle: torch's process group; None where this rank is no member, or the only one.
        shared: Gangline's process group, where its ranks share memory.
        place: of this rank among `ranks`, -1 where it is none of them.
    """

    ranks: tuple[int, ...]
    place: int
    handle: Any = None
    shared: Any = None

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.reshape(-1).view(torch.uint8)


class Collectives:
    """The collectives of this rank's process sets; only the engine's thread calls it."""

    def __init__(self) -> None:
        self.groups: dict[int, Group] = {}
        self._buffers: dict[tuple[str, Any], Any] = {}

    def run(self, batch: Batch, entries: Sequence[Entry | None]) -> None:
        """Do what a batch says and finish its entries.

        Args:
            entries: one for each agreement; None where this rank has joined.

        Raises:
            RuntimeError: a rank was lost meanwhile.
        """
        first = batch.agreements[0].request
        group = self.groups[first.process_set]
        if first.kind == ALLREDUCE and first.op == ADASUM:
            self._each(batch, entries, group, self._adasum)
        elif first.kind == ALLREDUCE:
            self._allreduce(batch, entries, group)
        elif first.kind == BROADCAST:
            self._broadcast(batch, entries, group)
        else:
            act = {ALLGATHER: self._allgather, ALLTOALL: self._alltoall, REDUCESCATTER: self._reducescatter}
            self._each(batch, entries, group, act[first.kind])

    @staticmethod
    def _each(batch: Batch, entries: Sequence[Entry | None], group: Group, act: Any) -> None:
        for made, entry in zip(batch.agreements, entries, strict=True):
            assert entry is not None, "only reductions go on while a rank has joined"
            entry.finish(act(made, entry, group))

    # Reductions ---------------------------------------------------------------------------------------------

    def _allreduce(self, batch: Batch, entries: Sequence[Entry | None], group: Group) -> None:
        if set(map(type, entries)) == {Again}:
            inputs = outputs = [entry.result for entry in entries if entry is not None]
            self._reduce(batch, inputs, outputs, group)
            return
        inputs, outputs = [], []
        for made, entry in zip(batch.agreements, entries, strict=True):
            if entry is None:
                zeros = _zeros(made.request)
                inputs += zeros
                outputs += zeros
            else:
                inputs += entry.inputs
                outputs += entry.outputs
        self._reduce(batch, inputs, outputs, group)
        begin = 0
        for made, entry in zip(batch.agreements, entries, strict=True):
            end = begin + len(made.request.shapes)
            if entry is not None:
                entry.finish(outputs[begin:end])
            begin = end

    def _reduce(self, batch: Batch, inputs: list[Any], outputs: list[Any], group: Group) -> None:
        if group.shared is not None and batch.is_plain:
            _reduce_in_memory(batch, inputs, outputs, group)
        else:
            self._reduce_side_by_side(batch, inputs, outputs, group)

    def _reduce_side_by_side(self, batch: Batch, inputs: list[Any], outputs: list[Any], group: Group) -> None:
        first = batch.agreements[0].request
        works: list[Any] = []
        for index in batch.alone:
            if outputs[index] is not inputs[index]:
                outputs[index].copy_(inputs[index])
            _scale([outputs[index]], first.prescale)
            works += _start_reduction(outputs[index], first.op, group)
        self._reserve(batch.flat, inputs)
        flat_works = [self._fuse(flat, inputs, first, group) for flat in batch.flat]
        for work in works:
            work.wait()
        divisor = group.size if first.op == AVERAGE else 1
        _scale([outputs[index] for index in batch.alone], first.postscale, divisor)
        for flat, begun in zip(batch.flat, flat_works, strict=True):
            for work in begun:
                work.wait()
            _unfuse(flat, outputs, first, divisor)

    def _reserve(self, flats: list[Flat], inputs: list[Any]) -> None:
        """Give flat parts their places in buffers that are large enough; nothing where they have them."""
        import torch

        wanted: dict[tuple[str, Any], int] = {}
        for flat in flats:
            key = flat.dtype, inputs[flat.indices[0]].device
            wanted[key] = max(wanted.get(key, 0), flat.begin + flat.count)
        for (dtype, device), count in wanted.items():
            buffer = self._buffers.get((dtype, device))
            if buffer is None or buffer.numel() < count:
                wire = getattr(torch, WIRE_DTYPES.get(dtype, dtype))
                self._buffers[dtype, device] = torch.empty(count, dtype=wire, device=device)

    def _fuse(self, flat: Flat, inputs: list[Any], request: Request, group: Group) -> list[Any]:
        """Copy small tensors side by side and begin to reduce them."""
        import torch

        buffer = self._buffers[flat.dtype, inputs[flat.indices[0]].device]
        if flat.buffer is not buffer:
            flat.buffer = buffer
            flat.used = buffer[flat.begin : flat.begin + flat.count]
            parts = flat.used.split(flat.sizes)
            flat.views = [part.view(shape) for part, shape in zip(parts, flat.shapes, strict=True)]
        torch._foreach_copy_(flat.views, [inputs[index] for index in flat.indices])
        _scale([flat.used], request.prescale)
        return _start_reduction(flat.used, request.op, group)

    def _adasum(self, made: Agreement, entry: Entry, group: Group) -> list[Any]:
        import torch

        for given, output in zip(entry.inputs, entry.outputs, strict=True):
            scaled = given.clone() if made.request.prescale != 1.0 else given
            _scale([scaled], made.request.prescale)
            rows = [torch.empty_like(given) for _ in group.ranks]
            _gather(rows, scaled, group)
            output.copy_(combine_all(rows))
        _scale(entry.outputs, made.request.postscale)
        return list(entry.outputs)

    def _reducescatter(self, made: Agreement, entry: Entry, group: Group) -> list[Any]:
        import torch
        import torch.distributed as dist

        request = made.request
        divisor = group.size if request.op == AVERAGE else 1
        results: list[Any] = []
        for given in entry.inputs:
            count, more = divmod(given.shape[0], group.size)
            begin = group.place * count + min(group.place, more)
            own = slice(begin, begin + count + (group.place < more))
            whole = given.to(torch.int32) if given.dtype in (torch.int16, torch.bool) else given.clone()
            _scale([whole], request.prescale)
            if more or group.size == 1 or not count or request.op in (MIN, MAX, PRODUCT):
                for work in _start_reduction(whole, request.op, group):
                    work.wait()
                part = whole[own].clone()
            else:
                part = torch.empty_like(whole[own])
                dist.reduce_scatter_tensor(part, whole, group=group.handle)
            _scale([part], request.postscale, divisor)
            results.append(part.to(given.dtype))
        return results

    # Everything else, as bytes ------------------------------------------------------------------------------

    @staticmethod
    def _allgather(made: Agreement, entry: Entry, group: Group) -> list[Any]:
        results: list[Any] = []
        for number, given in enumerate(entry.inputs):
            rows = [one[number] for one in made.rows]
            output = given.new_empty((sum(rows), *given.shape[1:]))
            parts = list(output.split(rows))
            if len(set(rows)) == 1:
                _gather(parts, given, group)
            elif output.numel():
                padded = given.new_empty((max(rows), *given.shape[1:]))
                padded[: given.shape[0]].copy_(given)
                gathered = [padded.new_empty(padded.shape) for _ in rows]
                _gather(gathered, padded, group)
                for part, one in zip(parts, gathered, strict=True):
                    part.copy_(one[: part.shape[0]])
            results.append(output)
        return results

    @staticmethod
    def _alltoall(made: Agreement, entry: Entry, group: Group) -> tuple[Any, list[int]]:
        import torch.distributed as dist

        (given,) = entry.inputs
        sent = list(made.splits[group.place])
        received = [splits[group.place] for splits in made.splits]
        output = given.new_empty((sum(received), *given.shape[1:]))
        row = given[:1].numel() * given.element_size() if given.shape[0] else 0
        row = row or output[:1].numel() * output.element_size()
        source = given[: sum(sent)]
        if group.size == 1:
            output.copy_(source)
        elif row and any(map(any, made.splits)):
            dist.all_to_all_single(
                *(_bytes(output), _bytes(source)),
                *([row * count for count in received], [row * count for count in sent]),
                group=group.handle,
            )
        return output, received

    @staticmethod
    def _broadcast(batch: Batch, entries: Sequence[Entry | None], group: Group) -> None:
        import torch
        import torch.distributed as dist

        root = batch.agreements[0].request.root
        pairs: list[tuple[Any, Any]] = []
        for entry in entries:
            assert entry is not None, "only reductions go on while a rank has joined"
            pairs += zip(entry.inputs, entry.outputs, strict=True)
        is_root = group.ranks[group.place] == root
        small: list[Any] = []
        for given, output in pairs:
            if is_root and output is not given:
                output.copy_(given)
            size = output.numel() * output.element_size()
            if size >= ALONE_BYTES and group.size > 1:
                dist.broadcast(_bytes(output), src=root, group=group.handle)
            elif size:
                small.append(_bytes(output))
        if small and group.size > 1:
            flat = torch.cat(small) if len(small) > 1 else small[0]
            dist.broadcast(flat, src=root, group=group.handle)
            if not is_root and len(small) > 1:
                torch._foreach_copy_(small, list(flat.split([one.numel() for one in small])))
        for entry in entries:
            if entry is not None:
                entry.finish(entry.outputs)


def _zeros(request: Request) -> list[Any]:
    """Return what a rank that has joined gives to a reduction."""
    import torch

    return [
        torch.zeros(shape, dtype=getattr(torch, dtype), device=request.device)
        for shape, dtype in zip(request.shapes, request.dtypes, strict=True)
    ]


def _gather(outputs: list[Any], given: Any, group: Group) -> None:
    """Fill contiguous tensors of one size with what every rank gives."""
    import torch.distributed as dist

    if group.size == 1:
        outputs[0].copy_(given)
    elif given.numel():
        dist.all_gather([_bytes(one) for one in outputs], _bytes(given), group=group.handle)


def _reduce_in_memory(batch: Batch, inputs: list[Any], outputs: list[Any], group: Group) -> None:
    """Reduce tensors from and to where they lie, in this thread: ranks that share memory need no buffer."""
    import torch
    import torch.distributed as dist

    if outputs is not inputs:
        copied = [pair for pair in zip(outputs, inputs, strict=True) if pair[0] is not pair[1]]
        if copied:
            torch._foreach_copy_(*map(list, zip(*copied, strict=True)))
    options = dist.AllreduceOptions()
    options.reduceOp = getattr(dist.ReduceOp, _TORCH_OPS[batch.agreements[0].request.op])
    options.asyncOp = False
    for index in batch.alone:
        group.shared.allreduce([outputs[index]], options).wait()
    for flat in batch.flat:
        group.shared.all_reduce_alike([outputs[index] for index in flat.indices], options).wait()


def _start_reduction(tensor: Any, op: int, group: Group) -> list[Any]:
    import torch.distributed as dist

    if group.size == 1 or not tensor.numel():
        return []
    how = {MIN: dist.ReduceOp.MIN, MAX: dist.ReduceOp.MAX, PRODUCT: dist.ReduceOp.PRODUCT}
    return [dist.all_reduce(tensor, how.get(op, dist.ReduceOp.SUM), group=group.handle, async_op=True)]


def _unfuse(flat: Flat, outputs: list[Any], request: Request, divisor: int) -> None:
    """Scale what was reduced as one and copy it to where it belongs."""
    import torch

    _scale([flat.used], request.postscale, divisor)
    torch._foreach_copy_([outputs[index] for index in flat.indices], flat.views)


def _scale(tensors: list[Any], factor: float, divisor: int = 1) -> None:
    """Multiply in place; whole numbers in float64 and cut off, 16 bits in float32, as Horovod does."""
    import torch

    if not tensors or (factor == 1.0 and divisor == 1):
        return
    if not tensors[0].is_floating_point() and not tensors[0].is_complex():
        for tensor in tensors:
            tensor.copy_((tensor.double() * factor / divisor).trunc())
    elif tensors[0].element_size() == 2:
        for tensor in tensors:
            tensor.copy_(tensor.float().mul_(factor / divisor))
    elif divisor == 1:
        torch._foreach_mul_(tensors, factor)
    elif factor == 1.0:
        torch._foreach_div_(tensors, divisor)
    else:
        torch._foreach_mul_(tensors, factor / divisor)
