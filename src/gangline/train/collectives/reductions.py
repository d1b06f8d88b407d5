"""How the ranks' numbers are put together: in the order of the ranks, so with the same bits in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.distributed import ReduceOp

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
    Adder = Callable[[list[Array], Array], None]

_HALVES = (torch.bfloat16, torch.float16)
_BETWEEN_NODES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
)
"""Types that gloo reduces."""
_ELEMENTS_AT_ONCE = 1 << 14
"""For half precision: below the size from which torch would start threads of its own for one operation."""

_OPERATIONS: dict[Any, tuple[Any, Any]] = {
    ReduceOp.SUM: (np.add, torch.add),
    ReduceOp.AVG: (np.add, torch.add),
    ReduceOp.PRODUCT: (np.multiply, torch.mul),
    ReduceOp.MIN: (np.minimum, torch.minimum),
    ReduceOp.MAX: (np.maximum, torch.maximum),
    ReduceOp.BAND: (np.bitwise_and, None),
    ReduceOp.BOR: (np.bitwise_or, None),
    ReduceOp.BXOR: (np.bitwise_xor, None),
}


def checked_op(op: Any) -> Any:
    """Return the kind of a reduction.

    Raises:
        ValueError: it is none that is done here.
    """
    found = next((one for one in _OPERATIONS if op == one), None)
    if found is None:
        raise ValueError(
            f"gangline has no reduction {op}; there are SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR"
        )
    return found


def check_between_nodes(dtype: Any) -> None:
    """Raise ValueError for a type that is reduced over shared memory alone."""
    if dtype not in _BETWEEN_NODES:
        raise ValueError(
            f"gangline reduces {dtype} only between ranks that share memory: convert to one of "
            f"{', '.join(str(one).removeprefix('torch.') for one in _BETWEEN_NODES)}"
        )


def without_average(op: Any) -> Any:
    """Return the reduction that an average begins with, for gloo."""
    return ReduceOp.SUM if op == ReduceOp.AVG else op


@contextmanager
def in_place(tensor: Any) -> Iterator[Array]:
    """Give a flat array whose contents are the tensor's before and after the block."""
    whole = tensor.contiguous()
    yield as_array(whole)
    if whole is not tensor and whole.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(whole)


def as_array(tensor: Any) -> Array:
    """Return a flat numpy view of a contiguous CPU tensor; types unknown to numpy come as integers."""
    # view(-1) would keep the strides of a single element
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj()).view(-1)
    try:
        array: Array = flat.numpy()
    except TypeError:
        array = flat.view({1: torch.uint8, 2: torch.int16}[flat.itemsize]).numpy()
    return array


def adder_for(dtype: Any, op: Any, divisor: int) -> Adder:
    """Return how parts of tensors of a type are put together in the order of the ranks, then divided.

    Half precision is added in float32 and rounded once.

    Args:
        dtype: of torch.
        op: the reduction.
        divisor: of the sum; integers are rounded towards zero, as torch does.

    Raises:
        ValueError: there is no such reduction of this type.
    """
    numpys, torchs = _OPERATIONS[op]
    if dtype in _HALVES:
        if torchs is None:
            raise ValueError(f"gangline has no bitwise reduction of {dtype}")
        return _half_adder(dtype, torchs, divisor)
    if dtype.itemsize == 1 and dtype.is_floating_point:
        raise ValueError(f"gangline does not reduce {dtype}: convert to bfloat16 first")
    if torchs is None and dtype.is_floating_point:
        raise ValueError(f"gangline has no bitwise reduction of {dtype}")

    def add(parts: list[Array], out: Array) -> None:
        if len(parts) == 1:
            out[:] = parts[0]
        else:
            numpys(parts[0], parts[1], out=out)
            for part in parts[2:]:
                numpys(out, part, out=out)
        if divisor > 1:
            divide(out, divisor)

    return add


def divide(array: Array, divisor: int) -> None:
    """Divide in place."""
    if array.dtype.kind == "f":
        np.divide(array, array.dtype.type(divisor), out=array)
    else:
        # Exact: floor division of the magnitude, which is rounding towards zero.
        np.copyto(array, np.sign(array) * (np.abs(array) // array.dtype.type(divisor)))


def divide_of(dtype: Any, divisor: int) -> Callable[[Array], None]:
    """Return a division in place of arrays that `as_array` made of tensors of a type."""
    if dtype not in _HALVES:
        return lambda array: divide(array, divisor)

    def divide_half(array: Array) -> None:
        torch.from_numpy(array).view(dtype).div_(divisor)

    return divide_half


def _half_adder(dtype: Any, operation: Any, divisor: int) -> Adder:
    def add(parts: list[Array], out: Array) -> None:
        for start in range(0, len(out), _ELEMENTS_AT_ONCE):
            piece = slice(start, start + _ELEMENTS_AT_ONCE)
            total = torch.from_numpy(parts[0][piece]).view(dtype).float()
            for part in parts[1:]:
                operation(total, torch.from_numpy(part[piece]).view(dtype), out=total)
            torch.from_numpy(out[piece]).view(dtype).copy_(total.div_(divisor) if divisor > 1 else total)

    return add
