"""The same parameters and optimizer state on all ranks, before the first step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.exchanges import broadcast_async_
from horovod.torch.objects import broadcast_object
from horovod.torch.submission import synchronize


def broadcast_parameters(
    params: Mapping[str, Any] | list[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give all ranks the root's tensors, in place.

    Args:
        params: a state dict, a list of pairs (name, tensor), or a list of tensors.
        root_rank: whose they are.
        process_set: ranks that take part.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(params, dict):
        pairs: Iterable[Any] = sorted(params.items())
    elif isinstance(params, list):
        pairs = [one if isinstance(one, tuple) else (None, one) for one in params]
    else:
        raise ValueError(f"broadcast_parameters takes a dict or a list, not {type(params).__name__}")
    copies: list[tuple[Any, Any]] = []
    handles: list[Any] = []
    for name, tensor in pairs:
        if not torch.is_tensor(tensor):
            continue
        whole = tensor.detach()
        if not whole.is_contiguous():
            whole = whole.contiguous()
            copies.append((tensor, whole))
        handles.append(broadcast_async_(whole, root_rank, name, process_set))
    for handle in handles:
        synchronize(handle)
    with torch.no_grad():
        for tensor, whole in copies:
            tensor.copy_(whole)


def broadcast_optimizer_state(optimizer: Any, root_rank: int, model: Any = None) -> None:
    """Give all ranks the root's optimizer state and options, such as the learning rate.

    An optimizer that has no state yet gets it by a step with gradients of zero.

    Args:
        optimizer: of torch, or what `DistributedOptimizer` made of it.
        root_rank: whose state it is.
        model: names sparse parameters, whose state needs sparse gradients.

    Raises:
        ValueError: it is LBFGS, whose state has no fixed shape.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    if not optimizer.state_dict()["state"]:
        _make_state(optimizer, _sparse_parameters(model))
    state = optimizer.state_dict()
    tensors: list[tuple[str, Any]] = []
    others: dict[str, Any] = {}
    for number, values in state["state"].items():
        for name, value in values.items():
            key = f"{name}.{number}"
            if torch.is_tensor(value):
                tensors.append((key, value))
            else:
                others[key] = value
    options = [
        {name: value for name, value in group.items() if name != "params"} for group in state["param_groups"]
    ]
    for index, group in enumerate(options):
        for name in [name for name, value in group.items() if torch.is_tensor(value)]:
            tensors.append((f"option.{name}.{index}", group.pop(name)))
    broadcast_parameters(tensors, root_rank)
    others, options = broadcast_object((others, options), root_rank, "optimizer_state")
    own = optimizer.state_dict()
    for key, value in others.items():
        name, _, number = key.rpartition(".")
        own["state"][int(number)][name] = value
    if others:
        torch.optim.Optimizer.load_state_dict(optimizer, own)
    for group, values in zip(optimizer.param_groups, options, strict=True):
        group.update(values)


def _sparse_parameters(model: Any) -> set[int]:
    if model is None:
        return set()
    layers = (one for one in model.modules() if isinstance(one, torch.nn.Embedding) and one.sparse)
    return {id(parameter) for layer in layers for parameter in layer.parameters()}


def _make_state(optimizer: Any, sparse: set[int]) -> None:
    """Make the optimizer's state by a step that changes no parameter by its gradient."""
    before: list[tuple[Any, Any]] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not parameter.requires_grad:
                continue
            before.append((parameter, parameter.grad))
            parameter.grad = torch.zeros_like(parameter)
            if isinstance(optimizer, torch.optim.SparseAdam) or id(parameter) in sparse:
                parameter.grad = parameter.grad.to_sparse()
    plain_step = getattr(optimizer, "step_without_exchange", optimizer.step)
    values = [parameter.detach().clone() for parameter, _ in before]
    plain_step()
    with torch.no_grad():
        for (parameter, _), value in zip(before, values, strict=True):
            parameter.copy_(value)  # weight decay moves it without a gradient
