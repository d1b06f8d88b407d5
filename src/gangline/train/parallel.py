"""A model whose gradients are averaged: torch's DistributedDataParallel with Gangline's communication hook.

The hook is registered at the first forward pass, so that a script may register its own before. Where it would
change a result it stays away, and torch's own path is taken: for sparse gradients, for a group of some of the
ranks, and where a script has a hook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gangline.errors import UserError
from gangline.train.gradients import counting_hook
from gangline.train.peers import Peers

if TYPE_CHECKING:
    from gangline.train.start import Session

Begin = Callable[[Any], Any]
"""Takes a bucket of gradients, returns the future of its average."""


class Parallel(DistributedDataParallel):
    """DistributedDataParallel with a hook that counts and, where it can be, goes over shared memory.

    Args:
        model: on this rank's device.
        begin: of the hook; None leaves torch's own path.
        peers: the other ranks.
        options: of DistributedDataParallel.
    """

    def __init__(self, model: nn.Module, begin: Begin | None, peers: Peers, **options: Any) -> None:
        super().__init__(model, **options)
        self._begin = begin
        self._peers = peers
        self._averages: list[Any] = []
        if begin is not None:
            self._registration = self.register_forward_pre_hook(self._register_hook)

    @staticmethod
    def _register_hook(parallel: Parallel, _: object) -> None:
        parallel._registration.remove()
        if not parallel._comm_hooks:  # a script has none of its own
            # The reducer is of C++ and would hold the model that holds it, for ever.
            found: Callable[[], Any] = ref(parallel)
            # torch refuses hooks with annotations other than its own types
            parallel.register_comm_hook(None, lambda state, bucket: found()._average(bucket))

    def _average(self, bucket: Any) -> Any:
        assert self._begin is not None
        future = self._begin(bucket)
        if torch._C._current_graph_task_id() == -1:  # of join(), which waits itself
            return future
        if not self._averages:
            # An error in a future reaches backward() as one of a cast; raised from here it stays what it is.
            torch.autograd.Variable._execution_engine.queue_callback(self._raise_errors)
        self._averages.append(future)
        return future

    def _raise_errors(self) -> None:
        averages, self._averages = self._averages, []
        for future in averages:
            try:
                future.wait()
            except RuntimeError as error:
                raise self._peers.lost(error, "the average of gradients") from error

    def join(self, divide_by_initial_world_size: bool = True, **options: Any) -> Any:
        """Return torch's context for ranks with unequal numbers of batches.

        Raises:
            UserError: averages over the ranks that are left are asked for, which a hook does not know.
        """
        if not divide_by_initial_world_size and self._begin is not None:
            raise UserError(
                "join(divide_by_initial_world_size=False) does not go with the average over all ranks",
                hint="build nn.parallel.DistributedDataParallel(model) yourself, or leave the option out",
            )
        return super().join(divide_by_initial_world_size, **options)


def parallel(session: Session, model: nn.Module, options: dict[str, Any]) -> Parallel:
    """Return a model of a session with averaged gradients."""
    options.setdefault("gradient_as_bucket_view", True)
    if session.device.type == "cuda":
        options.setdefault("device_ids", [session.device.index])
    group = options.get("process_group")
    is_of_all = group is None or group is dist.group.WORLD
    begin: Begin | None = None
    if session.size == 1:
        begin = _alone
    elif session.backend == "gloo" and not _has_sparse_gradients(model):
        if session.gradients is not None and is_of_all:
            begin = session.gradients.begin
        else:
            begin = counting_hook(session.traffic, dist.group.WORLD if is_of_all else group)
    return Parallel(model, begin, session.peers, **options)


def _alone(bucket: Any) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _has_sparse_gradients(model: nn.Module) -> bool:
    """Return whether a part of the model makes sparse gradients, by the rule of DistributedDataParallel."""
    kinds = nn.Embedding | nn.EmbeddingBag
    return any(isinstance(module, kinds) and module.sparse for module in model.modules())
