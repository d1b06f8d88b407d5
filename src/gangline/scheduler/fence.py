"""Holds nodes for a gang against schedulers that know nothing of it, while it is bound or waits for its room.

Another scheduler decides from its own cache. A pod that it gives a node to while a gang is being bound there
is one too many, and the kubelet refuses one of the two (``OutOfcpu``); single pods that take every free place
starve a gang for ever. So where others are at work the nodes get a taint first, see
:mod:`gangline.scheduler.node_taints`, and what those others had decided before they saw it is waited for.
kube-scheduler counts ``nominatedNodeName`` of its own pods alone (``responsibleForPod``, 1.35), so that would
not hold anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from gangline.api.core import Pod
from gangline.scheduler.kept import KeptPod, SeenPod
from gangline.scheduler.node_taints import NodeTaints

RECENT_S = 10.0
"""For so long after its last decision another scheduler counts as at work."""

SETTLE_S = 0.25
"""A decision of another scheduler is seen here so soon after it: binding and watch take 10 to 50 ms with
kube-scheduler 1.35 on two busy cores."""

LIMIT_S = 3.0
"""No longer is waited for the taint and for others; then the gang is bound as it is."""


class Fence:
    """Knows whether others are at work, and holds nodes against them.

    Args:
        taints: writes the taint.
        names: scheduler names of the pods that are placed here; all others are somebody else's.
    """

    def __init__(self, taints: NodeTaints, names: Collection[str]) -> None:
        self._taints = taints
        self._names = names
        self._unbound: set[str] = set()
        self._bound_s: dict[str, float] = {}
        self._kept: frozenset[str] = frozenset()

    def take_pod(self, old: SeenPod | None, new: Pod | None) -> None:
        """Take a pod as it is now; only those of other schedulers count."""
        if new is None:
            if old is not None:
                self._unbound.discard(KeptPod.of(old).uid)
            return
        if new.spec.scheduler_name in self._names:
            return
        uid = new.metadata.uid
        was_unbound = uid in self._unbound
        self._unbound.discard(uid)
        if new.is_finished or new.metadata.deletion_timestamp:
            return
        if not new.spec.node_name:
            if not new.spec.scheduling_gates:
                self._unbound.add(uid)
        elif was_unbound:
            now_s = asyncio.get_running_loop().time()
            self._bound_s = {name: at for name, at in self._bound_s.items() if now_s - at < RECENT_S}
            self._bound_s[new.spec.node_name] = now_s

    @property
    def is_needed(self) -> bool:
        """Whether another scheduler has pods to place, or had some a moment ago."""
        now_s = asyncio.get_running_loop().time()
        return bool(self._unbound) or any(now_s - at < RECENT_S for at in self._bound_s.values())

    def keep(self, nodes: Collection[str]) -> None:
        """Hold these nodes, and no longer those of the last call, until their gang is bound."""
        wanted = frozenset(nodes)
        self._taints.hold(wanted - self._kept)
        self._taints.release(self._kept - wanted)
        self._kept = wanted

    @asynccontextmanager
    async def around(self, nodes: Collection[str]) -> AsyncIterator[None]:
        """Hold nodes for the time of the block, which begins when others have stopped deciding for them.

        Cost: a write for each node, and 0.25 s.
        """
        self._taints.hold(nodes)
        try:
            try:
                async with asyncio.timeout(LIMIT_S):
                    await self._taints.until_held(nodes)
                    await self._until_settled(nodes)
            except TimeoutError:
                pass
            yield
        finally:
            self._taints.release(nodes)

    async def _until_settled(self, nodes: Collection[str]) -> None:
        loop = asyncio.get_running_loop()
        held_s = loop.time()
        while True:
            last_s = max(held_s, *(self._bound_s.get(name, 0.0) for name in nodes))
            left_s = last_s + SETTLE_S - loop.time()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)
