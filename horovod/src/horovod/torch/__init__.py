"""``import horovod.torch as hvd``: Horovod's interface for PyTorch, on torch.distributed."""

from horovod.torch import elastic
from horovod.torch.compression import Compression
from horovod.torch.mpi_ops import *  # noqa: F403 - one list of names, in mpi_ops
from horovod.torch.mpi_ops import __all__ as _collectives
from horovod.torch.objects import allgather_object, broadcast_object
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.parameters import broadcast_optimizer_state, broadcast_parameters
from horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = [  # noqa: PLE0604 - the names of mpi_ops too
    *_collectives,
    "Compression",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
]
