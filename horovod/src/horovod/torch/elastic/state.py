"""State of a training: models, optimizers, samplers and plain objects, kept in memory at each commit."""

from __future__ import annotations

import copy
from typing import Any

import torch

from horovod.common.elastic import ObjectState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.lifecycle import rank
from horovod.torch.objects import broadcast_object
from horovod.torch.parameters import broadcast_optimizer_state, broadcast_parameters


class StateHandler:
    """Saves, restores and takes over one thing."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keep it as it is."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to what was kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take rank 0's."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Handle another one from now on."""
        self.value = value
        self.save()


class _StateDictHandler(StateHandler):
    """One that has a ``state_dict``."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """Keep a copy."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Load the copy."""
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_StateDictHandler):
    """A model."""

    def sync(self) -> None:
        """Take rank 0's parameters and buffers, and keep them."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_StateDictHandler):
    """An optimizer."""

    def sync(self) -> None:
        """Take rank 0's state and options, and keep them."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_StateDictHandler):
    """An `ElasticSampler`."""

    def sync(self) -> None:
        """Take rank 0's progress, and keep it."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))
        self.save()


_handler_registry: list[tuple[type, type]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type]]:
    """Return which handler is for which type."""
    return _handler_registry


def set_handler_registry(registry: list[tuple[type, type]]) -> None:
    """Choose which handler is for which type."""
    global _handler_registry
    _handler_registry = registry


class TorchState(ObjectState):
    """State of a PyTorch training; what it is made of are its attributes.

    Args:
        model: of torch, or None.
        optimizer: of torch, or None.
        kwargs: further models, optimizers, samplers, and plain objects.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        kwargs.update(model=model, optimizer=optimizer)
        handlers: dict[str, Any] = {}
        for name, value in kwargs.items():
            kinds = [handler for kind, handler in _handler_registry if isinstance(value, kind)]
            if kinds:
                handlers[name] = kinds[0](value)
        self._handlers = handlers
        for name, handler in handlers.items():
            super().__setattr__(name, handler.value)
        plain = {name: value for name, value in kwargs.items() if name not in handlers}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **plain)

    def save(self) -> None:
        """Keep everything as it is."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Go back to what was kept last."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Take rank 0's state."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_handlers", {}) and hasattr(self, name):
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)
