"""The optimizer for Adasum: every rank takes its own step, and the steps are reduced."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from horovod.engine.agreement import ADASUM
from horovod.torch.named_parameters import checked_names
from horovod.torch.reductions import allreduce_async_
from horovod.torch.submission import synchronize


class DeltaOptimizer(torch.optim.Optimizer):
    """As `GradientOptimizer`, for steps. Its methods are copied into a class made for the user's one."""

    def __init__(self, params: Any, names: Any, options: dict[str, Any]) -> None:
        super(self.__class__, self).__init__(params)
        self._compression = options["compression"]
        self._parameter_names = checked_names(self.param_groups, names)
        self.backward_passes_per_step = options["backward_passes_per_step"]
        self._passes_left = dict.fromkeys(self._parameter_names, self.backward_passes_per_step)
        self._handles: dict[Any, Any] = {}
        self._starts = {parameter: torch.zeros_like(parameter) for parameter in self._parameter_names}
        self._requires_update: set[Any] = set()
        self._hooks: list[Any] = []
        for parameter in [one for group in self.param_groups for one in group["params"]]:
            if parameter.requires_grad:
                self._requires_update.add(parameter)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._on_gradient))

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Accumulate so many backward passes from now on."""
        self.backward_passes_per_step = passes
        self._passes_left = dict.fromkeys(self._passes_left, passes)

    def _on_gradient(self, parameter: Any) -> None:
        left = self._passes_left[parameter]
        if left <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). "
                "Increase backward_passes_per_step to accumulate gradients locally."
            )
        self._passes_left[parameter] = left - 1
        self._handles[parameter] = self._step_and_reduce(parameter) if left == 1 else None

    def _step_and_reduce(self, parameter: Any) -> Any:
        """Take the step of one parameter and begin to reduce how far it went."""
        with torch.no_grad():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            start = self._starts[parameter]
            start.copy_(parameter)
            members = [group["params"] for group in self.param_groups]
            for group in self.param_groups:
                group["params"] = [one for one in group["params"] if one is parameter]
            super(self.__class__, self).step()
            for group, whole in zip(self.param_groups, members, strict=True):
                group["params"] = whole
            delta, context = self._compression.compress(parameter.detach() - start)
        return allreduce_async_(delta, None, self._parameter_names[parameter], ADASUM), context

    def synchronize(self) -> None:
        """Do nothing: steps are reduced, not gradients."""

    def skip_synchronize(self) -> NoReturn:
        """Refuse: there is nothing to skip."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def step(self, closure: Any = None) -> Any:
        """Wait for the steps of all ranks and go as far as they say."""
        loss = closure() if closure is not None else None
        for parameter in self._requires_update:
            if self._handles.get(parameter) is None:
                self._handles[parameter] = self._step_and_reduce(parameter)
        with torch.no_grad():
            for parameter, (handle, context) in self._handles.items():
                delta = self._compression.decompress(synchronize(handle), context)
                parameter.copy_(self._starts[parameter] + delta)
                self._passes_left[parameter] = self.backward_passes_per_step
        self._handles.clear()
        return loss

    def step_without_exchange(self) -> None:
        """Take a step of the user's class alone."""
        super(self.__class__, self).step()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As torch's; refused while steps are in flight."""
        if self._handles:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step(). "
                "This is prohibited as it can cause a race condition."
            )
        super(self.__class__, self).zero_grad(*args, **kwargs)
