"""A copy of a state in the machine's memory: what is written behind a training that goes on changing it."""

from __future__ import annotations

import copy
from typing import Any

from gangline.train.checkpoints.sharded_state import Place, leaves, replaced


class Snapshots:
    """Copies states, each into the memory of the one before where tensors have kept their shapes.

    Fresh memory costs more than the copy itself: the kernel has to clear every page of it.
    """

    def __init__(self) -> None:
        self._kept: dict[Place, Any] = {}

    def take(self, state: Any) -> Any:
        """Return a copy that no later change of the state reaches; the copy before is overwritten.

        Tensors go to the machine's memory, those that are spread over ranks (DTensors) stay on their device.
        Tied tensors stay tied: they take their room in a file once.

        Cost: one copy of all tensors.
        """
        import torch

        found: dict[Place, Any] = {}
        copies: dict[tuple[Any, ...], Any] = {}
        kept, self._kept = self._kept, {}
        for place, leaf in leaves(state):
            if not isinstance(leaf, torch.Tensor):
                found[place] = _copied(leaf)
            elif type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout != torch.strided:
                found[place] = leaf.detach().clone()
            else:
                key = _memory(leaf)
                if key not in copies:
                    copies[key] = self._kept[place] = _tensor(leaf, kept.get(place))
                found[place] = _as(leaf, copies[key])
        return replaced(state, found) if found else copy.deepcopy(state)


def _memory(tensor: Any) -> tuple[Any, ...]:
    """Return what two tensors have in common that are one in memory."""
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


def _tensor(tensor: Any, old: Any) -> Any:
    import torch

    source = tensor.detach()
    if source.is_quantized:
        return source.cpu().clone()
    if old is None or (old.shape, old.dtype, old.stride()) != (source.shape, source.dtype, source.stride()):
        old = torch.empty_like(source, device="cpu")
    return old.copy_(source)


def _as(tensor: Any, found: Any) -> Any:
    """Return the copy as the kind of tensor that it was made of."""
    import torch

    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(found, requires_grad=tensor.requires_grad)
    return found.detach().requires_grad_() if tensor.requires_grad and tensor.is_leaf else found


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - copying runs code of any type; who writes it says what it is
        return value
