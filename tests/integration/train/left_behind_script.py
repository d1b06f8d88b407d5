"""Leaves a thread behind that waits in torch's store, and ends while the store's server goes."""

import sys
import time
from datetime import timedelta

import torch.distributed as dist

from gangline.train.peers import PeerLostError
from gangline.train.unless_lost import unless_lost

LIMIT = timedelta(seconds=60)


class GoesLast:
    """Holds a store until modules are taken apart, and gives threads time to notice that it is gone."""

    def __init__(self, store: object) -> None:
        self.store = store

    def __del__(self, sleep=time.sleep) -> None:
        self.store = None
        sleep(0.3)


server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=LIMIT, wait_for_workers=False)
client = dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=LIMIT, wait_for_workers=False)
try:
    unless_lost(lambda: client.get("never"), lambda: True)
except PeerLostError:
    sys.modules["goes last"] = GoesLast(server)  # type: ignore[assignment]
    del server
    sys.exit(3)
