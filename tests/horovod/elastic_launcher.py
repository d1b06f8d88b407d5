"""The least that an elastic launcher does: keeps the store, starts ranks, says which ended, and ends none.

Arguments: number of ranks, then the command of a rank. Its own standard output has that of the ranks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import timedelta

import torch.distributed as dist

from horovod.engine.membership import report_lost


def watch(process: subprocess.Popen, rank: int, store: dist.Store, codes: dict[int, int]) -> None:
    codes[rank] = process.wait()
    if codes[rank]:
        report_lost(store, rank)


if __name__ == "__main__":
    size = int(sys.argv[1])
    kept = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    shared = {
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": kept.port,
    }
    shared |= {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RUN_ID": "test", "HOROVOD_ELASTIC": 1}
    ended: dict[int, int] = {}
    watchers = []
    prefix = dist.PrefixStore("gangline/test/0", kept)
    for number in range(size):
        own = {name: str(value) for name, value in {**shared, "RANK": number, "LOCAL_RANK": number}.items()}
        started = subprocess.Popen(sys.argv[2:], env=os.environ | own)
        watchers.append(threading.Thread(target=watch, args=(started, number, prefix, ended)))
        watchers[-1].start()
    for one in watchers:
        one.join()
    sys.stdout.write(f"{sorted(ended.items())}\n")
