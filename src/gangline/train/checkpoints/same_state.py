"""Whether what is given as the same on all ranks is: only rank 0's is written, others' would be lost.

Compared are the tensors' names, shapes and types, and of optimizers a sample of the numbers: they see
averaged gradients, so their state differs only where each rank holds another part of it (FSDP1 without its
own calls), or where ranks have gone apart. A model's buffers differ by nature, as those of batch norm do.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Return a digest of some numbers of a tensor."""
    import torch

    count = tensor.numel()
    if not count or tensor.is_quantized:
        return "sample "
    # Over the memory, whatever the order of the dimensions is: nothing is copied but these numbers.
    stored = tensor.untyped_storage().nbytes() // tensor.itemsize - tensor.storage_offset()
    count = min(count, stored)  # an expanded tensor has less memory than numbers
    step = max(1, count // SAMPLES)
    flat = tensor.detach().as_strided((-(-count // step),), (step,), tensor.storage_offset())
    return "sample " + sha256(flat.cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
