"""Inside a rank: any launcher's environment made ready for torch.distributed.

::

    import gangline.train

    with gangline.train.init() as session:
        model = session.parallel(model)
        progress = session.progress(steps=1000, items_per_step=32 * session.size)
        checkpoints = session.checkpoints("checkpoints")

A script of its own may also say ``torch.distributed.init_process_group("gangline")``, having imported this.
Importing it costs a millisecond: torch and the rest are imported by ``init``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline.train.collectives.register import register_when_imported

if TYPE_CHECKING:
    from gangline.train.checkpoints.agreement import CheckpointError as CheckpointError
    from gangline.train.checkpoints.checkpoint import Checkpoints as Checkpoints
    from gangline.train.data.shard import Shard as Shard
    from gangline.train.elastic.run import run_elastic as run_elastic
    from gangline.train.elastic.state import ElasticState as ElasticState
    from gangline.train.environment import Ranks as Ranks
    from gangline.train.environment import read_ranks as read_ranks
    from gangline.train.peers import PeerLostError as PeerLostError
    from gangline.train.progress import NotFiniteError as NotFiniteError
    from gangline.train.progress import Progress as Progress
    from gangline.train.silence.script_watch import watch as watch
    from gangline.train.start import Session as Session
    from gangline.train.start import init as init

_HOMES = {
    "CheckpointError": "checkpoints.agreement",
    "Checkpoints": "checkpoints.checkpoint",
    "ElasticState": "elastic.state",
    "NotFiniteError": "progress",
    "PeerLostError": "peers",
    "Progress": "progress",
    "Ranks": "environment",
    "Session": "start",
    "Shard": "data.shard",
    "init": "start",
    "read_ranks": "environment",
    "run_elastic": "elastic.run",
    "watch": "silence.script_watch",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - from one table; a test holds what it says

register_when_imported()  # init_process_group("gangline")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
