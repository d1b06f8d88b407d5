"""DistributedOptimizer: any optimizer of torch whose step is taken with the gradients of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.engine import job
from horovod.engine.agreement import ADASUM, AVERAGE
from horovod.torch.adasum_optimizer import DeltaOptimizer
from horovod.torch.compression import Compression, NoneCompressor
from horovod.torch.lifecycle import rocm_built, size
from horovod.torch.named_parameters import checked_names
from horovod.torch.objects import broadcast_object
from horovod.torch.reductions import allreduce_async_, grouped_allreduce_async_, sparse_allreduce_async
from horovod.torch.submission import synchronize

TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
    "backward_passes_per_step to accumulate gradients locally."
)


class GradientOptimizer(torch.optim.Optimizer):
    """What is added to the user's class: a reduction begins when a gradient is there, the step waits for all.

    Its methods are copied into a class made for the user's one, see `DistributedOptimizer`.
    """

    def __init__(self, params: Any, names: Any, options: dict[str, Any]) -> None:
        super(self.__class__, self).__init__(params)
        self._compression = options["compression"]
        self._parameter_names = checked_names(self.param_groups, names)
        self.backward_passes_per_step = options["backward_passes_per_step"]
        self._passes_left = dict.fromkeys(self._parameter_names, self.backward_passes_per_step)
        self.op = options["op"]
        self.gradient_predivide_factor = options["gradient_predivide_factor"]
        self.sparse_as_dense = options["sparse_as_dense"]
        self.process_set = options["process_set"]
        self._handles: dict[Any, Any] = {}
        self._requires_update: set[Any] = set()
        self._hooks: list[Any] = []
        self._synchronized = False
        self._should_synchronize = True
        self._group_of: dict[Any, tuple[Any, ...]] = {}
        self._arrived: dict[tuple[Any, ...], int] = {}
        _check_groups(options["groups"])
        is_elastic = job.current().engine.settings.elastic
        if self.process_set.included() and (size() > 1 or is_elastic):
            self._make_groups(options["groups"])
            for parameter in [one for group in self.param_groups for one in group["params"]]:
                if parameter.requires_grad:
                    self._requires_update.add(parameter)
                    self._hooks.append(parameter.register_post_accumulate_grad_hook(self._on_gradient))

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load a state; what is in flight is forgotten."""
        self._handles = {}
        self._synchronized = False
        self._should_synchronize = True
        self.set_backward_passes_per_step(self.backward_passes_per_step)
        super(self.__class__, self).load_state_dict(*args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Accumulate so many backward passes from now on."""
        self.backward_passes_per_step = passes
        self._passes_left = dict.fromkeys(self._passes_left, passes)

    def _make_groups(self, groups: Any) -> None:
        if groups is None:
            return
        wanted = [one for group in self.param_groups for one in group["params"] if one.requires_grad]
        order = [self._parameter_names[one] for one in wanted]
        order = broadcast_object(order, self.process_set.ranks[0], "optimizer.groups", self.process_set)
        wanted.sort(key=lambda one: order.index(self._parameter_names[one]))
        if isinstance(groups, list):
            listed = {id(one) for group in groups for one in group}
            parts = [[one for one in group if one.requires_grad] for group in groups]
            parts += [[one] for one in wanted if id(one) not in listed]
        else:
            count, more = divmod(len(wanted), groups)
            ends = [index * count + min(index, more) for index in range(groups + 1)]
            parts = [wanted[begin:end] for begin, end in pairwise(ends)]
        for group in map(tuple, filter(None, parts)):
            self._arrived[group] = 0
            self._group_of.update(dict.fromkeys(group, group))

    def _on_gradient(self, parameter: Any) -> None:
        left = self._passes_left[parameter]
        if left <= 0:
            raise AssertionError(TOO_MANY_PASSES)
        self._passes_left[parameter] = left - 1
        group = self._group_of.get(parameter)
        if left > 1:
            self._handles.setdefault(parameter if group is None else group, None)
        elif group is None:
            self._handles[parameter] = self._reduce(parameter)
        else:
            self._arrived[group] += 1
            self._handles[group] = self._reduce_group(group) if self._arrived[group] == len(group) else None

    def _scales(self) -> tuple[float, float]:
        factor = self.gradient_predivide_factor if self.op == AVERAGE else 1.0
        return 1.0 / factor, factor

    def _reduce(self, parameter: Any) -> Any:
        """Begin to reduce a gradient; one that was not computed is zeros: other ranks may have it."""
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        name = self._parameter_names[parameter]
        gradient = parameter.grad
        if gradient.is_sparse:
            if not self.sparse_as_dense:
                return sparse_allreduce_async(gradient, name, self.op, self.process_set), None
            gradient = gradient.to_dense()
        context = None
        if self._compression is not NoneCompressor:
            gradient, context = self._compression.compress(gradient)
        elif not gradient.is_contiguous():
            gradient = gradient.contiguous()
        prescale, postscale = self._scales()
        handle = allreduce_async_(gradient, None, name, self.op, prescale, postscale, self.process_set)
        return handle, context

    def _reduce_group(self, group: tuple[Any, ...]) -> Any:
        for parameter in group:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        pairs = [self._compression.compress(parameter.grad.contiguous()) for parameter in group]
        prescale, postscale = self._scales()
        handle = grouped_allreduce_async_(
            *([tensor for tensor, _ in pairs], None, self._parameter_names[group[0]], self.op),
            *(prescale, postscale, self.process_set),
        )
        return handle, [context for _, context in pairs]

    def synchronize(self) -> None:
        """Wait until the gradients are those of all ranks: before they are clipped, for example."""
        if self.process_set.included():
            for parameter in self._requires_update:
                key = self._group_of.get(parameter, parameter)
                self._handles.setdefault(key, None)
            for key, begun in self._handles.items():
                if begun is None:
                    begin = self._reduce_group if isinstance(key, tuple) else self._reduce
                    self._handles[key] = begin(key)
            for key, (handle, context) in self._handles.items():
                if isinstance(key, tuple):
                    self._arrived[key] = 0
                    for parameter, output, its in zip(key, synchronize(handle), context, strict=True):
                        self._receive(parameter, output, its)
                else:
                    self._receive(key, handle() if callable(handle) else synchronize(handle), context)
        self._handles.clear()
        self._synchronized = True

    def _receive(self, parameter: Any, output: Any, context: Any) -> None:
        self._passes_left[parameter] = self.backward_passes_per_step
        gradient = parameter.grad
        if output is gradient:
            return
        reduced = self._compression.decompress(output, context) if not output.is_sparse else output
        if gradient.is_sparse:
            parameter.grad = reduced if reduced.is_sparse else reduced.to_sparse()
        else:
            gradient.copy_(reduced)

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within this, `step` does not wait: `synchronize` was called before."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Any = None) -> Any:
        """Take a step with the gradients of all ranks."""
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). This can cause training slowdown. You may want to "
                    "consider using "
                    "optimizer.skip_synchronize() context if you use optimizer.synchronize() in your code.",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        return super(self.__class__, self).step(closure)

    def step_without_exchange(self) -> None:
        """Take a step of the user's class alone."""
        super(self.__class__, self).step()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As torch's, ``set_to_none`` included; refused while reductions write into the gradients."""
        if self._handles:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        super(self.__class__, self).zero_grad(*args, **kwargs)


def _check_groups(groups: Any) -> None:
    if groups is None:
        return
    if not isinstance(groups, list):
        if not groups > 0:
            raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
        return
    seen: set[int] = set()
    for parameter in (one for group in groups for one in group):
        if not isinstance(parameter, torch.Tensor):
            raise ValueError("groups must consist of torch.Tensor.")
        if id(parameter) in seen:
            raise ValueError("A parameter can only appear once in groups.")
        seen.add(id(parameter))


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    named_parameters: Iterable[tuple[str, Any]] | Mapping[str, Any] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer of the same class whose `step` uses the gradients of all ranks.

    It is an instance of a class made for it, which bears the name of the user's class and inherits from it.

    Args:
        optimizer: of torch; its groups of parameters are taken over.
        named_parameters: pairs of name and parameter, all of them or None.
        compression: `Compression.fp16` sends 16 bits.
        backward_passes_per_step: gradients are accumulated over so many passes.
        op: Average, Sum, or Adasum, which reduces the steps instead of the gradients.
        gradient_predivide_factor: divide by it before the sum, and multiply after it.
        num_groups: older form of ``groups``.
        groups: number of groups, or lists of parameters, that are reduced together.
        sparse_as_dense: reduce sparse gradients as dense ones.
        process_set: ranks that take part; elsewhere the optimizer is the user's.

    Raises:
        ValueError: names are missing or twice there, or options contradict each other.
    """
    if gradient_predivide_factor != 1.0:
        if rocm_built():
            raise ValueError("gradient_predivide_factor not supported yet with ROCm")
        if op != AVERAGE:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn("`num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    pattern: Any = GradientOptimizer
    if op == ADASUM and size() > 1:
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        pattern = DeltaOptimizer
    members = {
        name: value for name, value in vars(pattern).items() if name not in ("__dict__", "__weakref__")
    }
    made = type(type(optimizer).__name__, (type(optimizer),), members)
    options = {
        "compression": compression,
        "backward_passes_per_step": backward_passes_per_step,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "groups": groups,
        "sparse_as_dense": sparse_as_dense,
        "process_set": process_set,
    }
    return made(optimizer.param_groups, named_parameters, options)
