"""Whether what is given as the same on all ranks is: only rank 0's is written, others' would be lost.

Compared are the tensors' names, shapes and types, and of optimizers a sample of the numbers: they see
averaged gradients, so their state differs only where each rank holds another part of it (FSDP1 without its
own calls), or where ranks have gone apart. A model's buffers differ by nature, as those of batch norm do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from gangline.train.checkpoints.sharded_state import Place, leaves, named

SAMPLES = 16
"""Numbers of each tensor that are compared."""


def marks_of(state: Any) -> dict[str, str]:
    """Return a mark for every plain tensor of a state; tensors that are the same have the same mark.

    Args:
        state: as it was given to ``save``, without tensors that are spread over ranks.
    """
    import torch

    marks: dict[str, str] = {}
    optimizers = [*_optimizers(state)]
    for place, leaf in leaves(state):
        if isinstance(leaf, torch.Tensor):
            mark = f"{leaf.dtype} {tuple(leaf.shape)}"
            if any(place[: len(one)] == one for one in optimizers) and leaf.layout == torch.strided:
                mark += f" {_sample(leaf)}"
            marks[named(place)] = mark
    return marks


def is_plain(state: Any) -> bool:
    """Return whether no tensor of a state is spread over ranks, or of another kind that is no plain one."""
    import torch

    kinds = {type(leaf) for _, leaf in leaves(state) if isinstance(leaf, torch.Tensor)}
    return kinds <= {torch.Tensor, torch.nn.Parameter}


def digest(marks: Mapping[str, str]) -> str:
    """Return a short name for marks; ``""`` for none."""
    return sha256(repr(sorted(marks.items())).encode()).hexdigest()[:16] if marks else ""


def difference(first: Mapping[str, str], other: Mapping[str, str], rank: int) -> str:
    """Return what another rank's state has that the first one's has not, ``""`` when nothing would be lost.

    Example:
        >>> difference({'state["a"]': "float32 (2,)"}, {'state["a"]': "float32 (3,)"}, 1)
        'state["a"] is float32 (2,) on rank 0 and float32 (3,) on rank 1'
    """
    for name, mark in other.items():
        if name not in first:
            return f"{name} is there on rank {rank} and not on rank 0"
        if first[name] != mark:
            shown, others = (one.rpartition(" sample ")[0] or one for one in (first[name], mark))
            if shown == others:
                return f"{name} has other numbers on rank {rank} than on rank 0"
            return f"{name} is {shown} on rank 0 and {others} on rank {rank}"
    return ""


def _optimizers(state: Any, place: Place = ()) -> list[Place]:
    """Return where states of optimizers are: dictionaries with ``state`` and ``param_groups``."""
    if isinstance(state, dict) and {"state", "param_groups"} <= state.keys():
        return [place]
    if not isinstance(state, dict | list | tuple):
        return []
    parts = state.items() if isinstance(state, dict) else enumerate(state)
    return [found for key, part in parts for found in _optimizers(part, (*place, key))]


def _sample(tensor: Any) -> str:
    """Return a digest of some numbers of a tensor: the same for the same ones, however they lie in memory."""
    import torch

    count = tensor.numel()
    if not count or tensor.is_quantized:
        return "sample "
    step, tensor = max(1, count // SAMPLES), tensor.detach()
    if tensor.is_contiguous():
        some = tensor.view(-1)[::step]
    else:
        places = _places(tensor.shape, tensor.stride(), step).to(tensor.device)
        length = 1 + sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )
        some = tensor.as_strided((length,), (1,)).index_select(0, places)
    some = some.cpu().resolve_conj().resolve_neg().contiguous()
    return "sample " + sha256(some.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


@lru_cache(maxsize=4096)
def _places(shape: tuple[int, ...], strides: tuple[int, ...], step: int) -> Any:
    """Return where in memory every so many numbers of a tensor are, counted in its order."""
    import torch

    counted = torch.unravel_index(torch.arange(0, math.prod(shape), step), shape)
    return sum((one * stride for one, stride in zip(counted, strides, strict=True)), torch.zeros(1).long())
