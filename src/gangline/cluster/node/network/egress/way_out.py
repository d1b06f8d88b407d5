"""The way out of the pods of one cluster: packets and names together, and what is said of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gangline.cluster.node.network.egress.gate import EgressGate
from gangline.cluster.node.network.egress.resolver import Resolver
from gangline.cluster.node.network.host_names import PodHost


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
        self._gate = EgressGate(cluster_id=cluster_id, bridge=bridge, subnet=subnet)
        self._resolver = Resolver(resolv, str(subnet.network_address + 1), subnet, hosts)
        self.resolv = resolv
        self._resolver.refuse_all()  # until it is open, and where it cannot be

    async def open(self) -> None:
        """Open it as far as the machine allows; ``report`` tells how far."""
        await self._gate.open()
        if not self._gate.refusal:
            await self._resolver.open()

    async def keep(self, log: Any) -> None:
        """Follow changes of the machine's network until cancelled."""
        await self._gate.keep(log)

    async def close(self, *, remove: bool) -> None:
        """Stop answering; ``remove`` also takes the packet rules away, when no pod is left."""
        await self._resolver.close()
        if remove:
            await self._gate.close()

    def report(self) -> dict[str, Any]:
        """Return what ``gangline status`` shows: whether it works, and what there is to say of it."""
        refusal = "; ".join(filter(None, [self._gate.refusal, self._resolver.refusal]))
        return {"open": not self._gate.refusal, "note": refusal or self._gate.note}
