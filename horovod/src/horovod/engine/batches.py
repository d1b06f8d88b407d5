"""Which agreements are carried out as one, and how their tensors lie in one flat buffer. Pure.

All ranks compute the same batches, because they see the same agreements in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod.engine.agreement import ADASUM, ALLREDUCE, BROADCAST, Agreement, Key

ALONE_BYTES = 1 << 20
"""A tensor from this size on is reduced where it lies: copying it costs more than a collective of its own."""

FLAT_BYTES = 8 << 20
"""A flat part ends at this size: while one is reduced the next is copied, both in the processor's cache."""

WIRE_DTYPES = {"int16": "int32", "bool": "uint8"}
"""Types that not every backend adds, and what they travel as."""

_BYTES = {
    "float64": 8,
    "int64": 8,
    "complex64": 8,
    "complex128": 16,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint8": 1,
    "int8": 1,
    "bool": 1,
}


def byte_size(dtype: str) -> int:
    """Return the bytes of one element."""
    return _BYTES.get(dtype, 8)


@dataclass(slots=True)
class Flat:
    """Tensors of one type that lie side by side in a buffer and are reduced as one.

    Attributes:
        dtype: theirs.
        begin: element of the buffer at which they begin; `count` elements are theirs.
        indices: of the tensors in their batch.
        sizes: elements of each.
        buffer: the one that `views` belongs to, None at first.
        used: their part of it.
        views: of the buffer, one for each tensor, in its shape.
    """

    dtype: str
    begin: int = 0
    count: int = 0
    indices: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    buffer: Any = None
    used: Any = None
    views: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Batch:
    """Agreements that are carried out as one.

    Attributes:
        keys: of the agreements.
        is_plain: reductions of types that every backend has, without factors.
        alone: indices of tensors that are reduced where they lie.
        flat: those that are copied together, and reduced in this order.
    """

    agreements: list[Agreement]
    keys: list[Key]
    is_plain: bool = False
    alone: list[int] = field(default_factory=list)
    flat: list[Flat] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """What it does."""
        return self.agreements[0].request.kind


def make_batches(
    agreements: Iterable[Agreement], fusion_bytes: int, *, fuse_groups: bool = True
) -> list[Batch]:
    """Return the batches, in the order of their first agreements."""
    batches: list[list[Agreement]] = []
    open_batch: dict[Any, tuple[list[Agreement], int]] = {}
    for made in agreements:
        request = made.request
        size = sum(
            math.prod(shape) * byte_size(dtype)
            for shape, dtype in zip(request.shapes, request.dtypes, strict=True)
        )
        key = _fusion_key(made, fuse_groups)
        batch, filled = open_batch.get(key, ([], 0)) if key is not None else ([], 0)
        if not batch or filled + size > fusion_bytes:
            batch, filled = [], 0
            batches.append(batch)
        batch.append(made)
        if key is not None:
            open_batch[key] = batch, filled + size
    return [_laid_out(batch) for batch in batches]


def _fusion_key(made: Agreement, fuse_groups: bool) -> Any:
    request = made.request
    if made.error or request.kind not in (ALLREDUCE, BROADCAST) or request.op == ADASUM:
        return None
    if len(request.shapes) > 1 and not fuse_groups:
        return None
    return (
        *(request.kind, request.process_set, request.device, request.op),
        *(request.prescale, request.postscale, request.root),
        request.dtypes[0] if request.kind == ALLREDUCE else "",
    )


def _laid_out(agreements: Sequence[Agreement]) -> Batch:
    batch = Batch(list(agreements), [made.request.key for made in agreements])
    if batch.kind != ALLREDUCE or batch.agreements[0].error:
        return batch
    index = 0
    last: dict[str, Flat] = {}
    for made in agreements:
        for shape, dtype in zip(made.request.shapes, made.request.dtypes, strict=True):
            count = math.prod(shape)
            if count * byte_size(dtype) >= ALONE_BYTES and dtype not in WIRE_DTYPES:
                batch.alone.append(index)
            else:
                flat = last.get(dtype)
                if flat is None or flat.count * byte_size(dtype) >= FLAT_BYTES:
                    flat = last[dtype] = Flat(dtype, flat.begin + flat.count if flat else 0)
                    batch.flat.append(flat)
                flat.indices.append(index)
                flat.sizes.append(count)
                flat.shapes.append(shape)
                flat.count += count
            index += 1
    first = batch.agreements[0].request
    batch.is_plain = first.prescale == first.postscale == 1.0 and not last.keys() & WIRE_DTYPES.keys()
    return batch
