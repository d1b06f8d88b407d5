"""The way out of the pods of one cluster: packets and names together, and what is said of them."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gangline.api.core import EndpointSlice, Service
from gangline.cluster.node.network.egress.gate import EgressGate
from gangline.cluster.node.network.egress.resolver import Resolver
from gangline.cluster.node.network.egress.service_gate import ServiceGate
from gangline.cluster.node.network.host_names import PodHost
from gangline.kube.cache import Cache


class WayOut:
    """See the module's text.

    Args:
        cluster_id: of the cluster.
        bridge: its bridge, which exists when ``open`` is called.
        subnet: addresses of its pods.
        resolv: file for the pods' ``resolv.conf``; it exists afterwards.
        hosts: returns all pods.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        bridge: str,
        subnet: ipaddress.IPv4Network,
        resolv: Path,
        hosts: Callable[[], Iterable[PodHost]],
    ) -> None:
        self._place = {"cluster_id": cluster_id, "bridge": bridge}
        self._gateway = str(subnet.network_address + 1)
        self._gate = EgressGate(**self._place, subnet=subnet)
        self._services: ServiceGate | None = None
        self._resolver = Resolver(resolv, self._gateway, subnet, hosts)
        self.resolv = resolv
        self._resolver.refuse_all()  # until it is open, and where it cannot be

    def lead_to_services(self, services: Cache[Service], slices: Cache[EndpointSlice]) -> None:
        """Have addresses and names of services lead to their pods, from ``keep`` on."""
        gate = ServiceGate(**self._place, gateway=self._gateway, services=services, slices=slices)
        self._services = gate
        self._resolver.services = gate.services

    async def open(self) -> None:
        """Open it as far as the machine allows; ``report`` tells how far."""
        await self._gate.open()
        if not self._gate.refusal:
            await self._resolver.open()

    async def keep(self, log: Any) -> None:
        """Follow changes of the machine's network and of services until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._gate.keep(log))
            if self._services is not None and not self._gate.refusal:
                tasks.create_task(self._services.keep(log))

    async def close(self, *, remove: bool) -> None:
        """Stop answering; ``remove`` also takes the packet rules away, when no pod is left."""
        await self._resolver.close()
        if remove:
            await self._gate.close()

    def report(self) -> dict[str, Any]:
        """Return what ``gangline status`` shows: whether it works, and what there is to say of it."""
        refusal = "; ".join(filter(None, [self._gate.refusal, self._resolver.refusal]))
        return {"open": not self._gate.refusal, "note": refusal or self._gate.note}
