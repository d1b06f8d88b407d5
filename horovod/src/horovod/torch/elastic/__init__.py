"""Elastic training: ``@hvd.elastic.run`` around a function of a `TorchState`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod.common.elastic import run_fn
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod.torch.lifecycle import init, shutdown


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Let a training go on when ranks come and go.

    The function takes a state first. When a collective fails the state goes back to its last commit, when
    hosts
    change it stays; then the job begins anew, rank 0's state is taken over, and the function is called again.
    """
    return run_fn(func, _reset)


def _reset() -> None:
    shutdown()
    init()


__all__ = ["ElasticSampler", "TorchState", "run"]
