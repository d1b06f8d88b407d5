"""Keeps the table of services in step with the Services and EndpointSlices of the cluster."""

from __future__ import annotations

import asyncio
from typing import Any

from gangline.api.core import EndpointSlice, Service
from gangline.cluster.node.network.egress.netfilter import change_table, replace_table
from gangline.cluster.node.network.egress.rules import TABLE_PREFIX, RuleChain
from gangline.cluster.node.network.egress.service_rules import SERVICES_SUFFIX, service_chains
from gangline.cluster.node.network.services import ClusterService, cluster_services
from gangline.errors import ClusterError
from gangline.kube.cache import Cache

COALESCE_S = 0.1
"""Changes within this time are one change of the table."""


class ServiceGate:
    """See the module's text.

    Args:
        cluster_id: of the cluster.
        bridge: its bridge.
        gateway: address of the bridge.
        services: of the cluster; run by whoever made it.
        slices: of the cluster; run here.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        bridge: str,
        gateway: str,
        services: Cache[Service],
        slices: Cache[EndpointSlice],
    ) -> None:
        self._table = f"{TABLE_PREFIX}{cluster_id}{SERVICES_SUFFIX}"
        self._bridge = bridge
        self._gateway = gateway
        self._services = services
        self._slices = slices
        self._known: list[ClusterService] | None = None
        self._applied: list[RuleChain] | None = None
        self._changed = asyncio.Event()
        services.on_change(self._on_change)
        slices.on_change(self._on_change)

    def services(self) -> list[ClusterService]:
        """Return all services, as they are now. Cost: O(endpoints) after a change, else nothing."""
        if self._known is None:
            self._known = cluster_services(self._services.items(), self._slices.items())
        return self._known

    async def keep(self, log: Any) -> None:
        """Follow changes until cancelled; what the kernel refuses is tried again with the next change."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._slices.run())
            await self._slices.wait_known()
            while True:
                self._changed.clear()
                chains = service_chains(self.services(), bridge=self._bridge, gateway=self._gateway)
                try:
                    await asyncio.to_thread(self._apply, chains)
                except ClusterError as error:
                    self._applied = None
                    log.warning("addresses of services lead nowhere", error=str(error))
                await self._changed.wait()
                await asyncio.sleep(COALESCE_S)

    def _apply(self, chains: list[RuleChain]) -> None:
        if self._applied is None:
            replace_table(self._table, chains)  # what an agent before this one left goes with it
        elif chains != self._applied:
            change_table(self._table, self._applied, chains)
        self._applied = chains

    def _on_change(self, old: object, new: object) -> None:
        self._known = None
        self._changed.set()
