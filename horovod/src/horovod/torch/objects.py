"""Any Python object, from one rank to all or from all to all, as pickled bytes in a tensor."""

from __future__ import annotations

from typing import Any

import cloudpickle
import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.exchanges import allgather, broadcast_
from horovod.torch.lifecycle import rank


def _as_tensor(obj: Any) -> Any:
    return torch.frombuffer(bytearray(cloudpickle.dumps(obj)), dtype=torch.uint8)


def _as_object(tensor: Any) -> Any:
    return cloudpickle.loads(tensor.numpy().tobytes())


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the root's object on all ranks.

    Args:
        obj: the root's counts; the root gets it back as it is.
        root_rank: a rank of the whole job.
        name: by which the ranks find each other's; the name of the object's type unless given.
        process_set: ranks that take part.
    """
    name = name if name is not None else type(obj).__name__
    is_root = rank() == root_rank
    data = _as_tensor(obj) if is_root else None
    size = torch.tensor([data.numel() if data is not None else 0])
    broadcast_(size, root_rank, f"{name}.sz", process_set)
    if data is None:
        data = torch.empty(int(size), dtype=torch.uint8)
    broadcast_(data, root_rank, f"{name}.t", process_set)
    return obj if is_root else _as_object(data)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks, in their order."""
    name = name if name is not None else type(obj).__name__
    data = _as_tensor(obj)
    sizes = allgather(torch.tensor([data.numel()]), f"{name}.sz", process_set)
    gathered = allgather(data, f"{name}.t", process_set)
    return [_as_object(part) for part in gathered.split(sizes.tolist())]
