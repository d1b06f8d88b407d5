"""The watch for scripts that make their process group themselves: plain DDP, trainers of others."""

from __future__ import annotations

import atexit

from gangline.errors import UserError
from gangline.train import start
from gangline.train.environment import Ranks, complete
from gangline.train.heartbeat import HeartbeatSocket
from gangline.train.rendezvous import exchange
from gangline.train.silence.own_place import own_place
from gangline.train.silence.watch import Watch
from gangline.train.stacks import StackFile
from gangline.train.stall_detection import SILENT_AFTER_S
from gangline.train.traffic import traffic

_watch: Watch | None = None
_turns = 0


def watch(*, silent_after_s: float = SILENT_AFTER_S) -> Watch:
    """Have the ranks of this process group watch over one another; who keeps the others waiting is named.

    All ranks call it, after ``init_process_group`` and in their main thread. Nothing else of the script has
    to change: what the ranks wait in is seen in torch's flight recorder. A second call returns the same one.

    Args:
        silent_after_s: how long nobody gets on before the one that keeps the others waiting is named.

    Raises:
        UserError: there is no process group.
    """
    global _watch, _turns
    session = start.current()
    if session is not None and session.watch is not None:
        return session.watch
    if _watch is not None and not _watch.is_over:
        return _watch
    import torch.distributed as dist

    if not dist.is_initialized():
        raise UserError(
            "gangline.train.watch() found no process group",
            hint="call it after torch.distributed.init_process_group(…), on all ranks",
        )
    from gangline.train.collectives.rank_group import RankGroup

    RankGroup.is_watched = True
    _turns += 1
    stack_file, beats = StackFile(), HeartbeatSocket()
    told = Ranks(dist.get_rank(), dist.get_world_size())
    store = dist.PrefixStore(f"gangline-watch/{_turns}", dist.distributed_c10d._get_default_store())
    facts = exchange(store, told, own_place(stack_file, beats))
    ranks = complete(told, [str(fact["node"]) for fact in facts])
    _watch = Watch(ranks, facts, store, traffic, stack_file, beats, silent_after_s=silent_after_s)
    _watch.start()
    atexit.register(_watch.close)
    return _watch
