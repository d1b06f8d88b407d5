"""Ends a cluster that ``gangline run`` started by itself, once nobody has used it for a while."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

from gangline.api.resources import PODS
from gangline.cluster.daemon.cluster_facts import last_used, load_facts
from gangline.cluster.paths import ClusterPaths
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

IDLE_END_S = 600.0
IDLE_LOOK_S = 30.0
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


async def end_when_idle(client: ObjectClient, paths: ClusterPaths) -> None:
    """Look every 30 s; after 10 minutes without a command and without an unfinished pod SIGTERM itself.

    A cluster kept by ``gangline up`` is left alone; that may change while it runs.
    """
    busy = time.time()
    while True:
        await asyncio.sleep(IDLE_LOOK_S)
        facts = load_facts(paths)
        try:
            has_pods = await client.any(PODS, field_selector=_UNFINISHED)
        except ClusterError:  # overloaded, for example
            busy = time.time()
            continue
        if facts is None or facts.keep or has_pods:
            busy = time.time()
        if time.time() - max(busy, last_used(paths)) >= IDLE_END_S:
            os.kill(os.getpid(), signal.SIGTERM)
            return
