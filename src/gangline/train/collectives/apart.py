"""Groups beside the training's own: nothing else waits in line there."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from gangline.train.collectives.connections import connected, end_connections
from gangline.train.unless_lost import unless_lost

_groups: weakref.WeakSet[Any] = weakref.WeakSet()


def group_apart(size: int, is_lost: Callable[[], bool] | None) -> Any:
    """Return a group of gloo of all ranks, None for a single one; all ranks call it together.

    Args:
        size: number of ranks.
        is_lost: see `gangline.train.unless_lost`.

    Raises:
        PeerLostError: a rank was lost before all had come.
    """
    if size == 1:
        return None
    import torch.distributed as dist

    group = unless_lost(lambda: connected(lambda: dist.new_group(backend="gloo")), is_lost)
    _groups.add(group)
    return group


def abort_apart() -> None:
    """Let whatever waits in such a group end with an error; called from any thread."""
    for group in _groups.copy():
        end_connections(group)
