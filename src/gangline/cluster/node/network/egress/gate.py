"""The way out of one cluster's pods: opened with its bridge, kept right while routes change, closed with it.

Nothing is remembered in this process: what was switched is told by the tables themselves, so that the next
agent, another cluster, or ``gangline down`` after a kill finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from typing import Any

from gangline.cluster.node.network.egress.forwarding import (
    forwards,
    is_router,
    is_there,
    read_interfaces,
    switch,
)
from gangline.cluster.node.network.egress.netfilter import (
    FoundChain,
    read_chains,
    remove_table,
    replace_table,
)
from gangline.cluster.node.network.egress.rules import (
    TABLE_PREFIX,
    Ways,
    chains_of,
    firewall_words,
    switched_in,
)
from gangline.cluster.node.network.egress.service_rules import SERVICES_SUFFIX
from gangline.errors import ClusterError

REFRESH_PERIOD_S = 5.0
"""Routes change when a network comes or goes; two small files are read each time."""


class EgressGate:
    """See the module's text.

    Attributes:
        refusal: why pods do not reach the outside, empty when they do.
        note: what is to be said of a gate that is open.
    """

    def __init__(self, *, cluster_id: str, bridge: str, subnet: ipaddress.IPv4Network) -> None:
        self._ways = Ways(cluster_id=cluster_id, bridge=bridge, subnet=subnet)
        self._applied: Ways | None = None
        self.refusal = ""
        self.note = ""

    async def open(self) -> None:
        """Put the rules in place and switch on forwarding; ``refusal`` tells why that did not work."""
        try:
            await asyncio.to_thread(self._refresh)
        except ClusterError as error:
            self.refusal = str(error)

    async def keep(self, log: Any) -> None:
        """Follow the machine's routes until cancelled."""
        while not self.refusal:
            await asyncio.sleep(REFRESH_PERIOD_S)
            try:
                await asyncio.to_thread(self._refresh)
            except ClusterError as error:
                log.warning("the way out of pods was not refreshed", error=str(error))

    async def close(self) -> None:
        """Remove the rules and switch off what only this cluster needed."""
        with contextlib.suppress(ClusterError):
            await asyncio.to_thread(remove_gate, self._ways.cluster_id)

    def _refresh(self) -> None:
        bridge = self._ways.bridge
        chains = read_chains()
        if is_router():
            wanted: frozenset[str] = frozenset()
        else:
            marked = frozenset[str]().union(*_marks(chains).values())
            kept = frozenset(name for name in marked if is_there(name))  # also one that has lost its route
            wanted = kept | frozenset(name for name in read_interfaces() if not forwards(name))
        ways = Ways(self._ways.cluster_id, bridge, self._ways.subnet, wanted)
        if ways != self._applied:
            replace_table(ways.table, chains_of(ways))  # the marks first: a kill in between loses none
            self._applied = ways
        if refused := switch([bridge, *wanted], on=True):
            raise ClusterError(f"forwarding of {', '.join(refused)} cannot be switched on")
        dropping = [(one.table, one.name) for one in chains if one.hook == "forward" and one.drops]
        firewall = firewall_words(dropping, {(one.table, one.name) for one in chains}, bridge)
        self.note = "; ".join(filter(None, [_switched_words(wanted), firewall]))


def remove_gate(cluster_id: str) -> bool:
    """Remove a cluster's rules, and switch off interfaces that no other cluster of the machine needs.

    Returns:
        Whether there were any.

    Raises:
        ClusterError: the kernel refuses.
    """
    marks = _marks(read_chains())
    if (of_services := f"{TABLE_PREFIX}{cluster_id}{SERVICES_SUFFIX}") in marks:
        remove_table(of_services)
    table = f"{TABLE_PREFIX}{cluster_id}"
    if table not in marks:
        return False
    own = marks.pop(table)
    if not is_router():
        switch(own.difference(*marks.values()), on=False)
    remove_table(table)
    return True


def _marks(chains: list[FoundChain]) -> dict[str, frozenset[str]]:
    """Return the switched interfaces by the table, for all clusters of the machine."""
    tables = {chain.table for chain in chains if chain.table.startswith(TABLE_PREFIX)}
    return {
        table: switched_in(chain.name for chain in chains if chain.table == table) for table in sorted(tables)
    }


def _switched_words(names: frozenset[str]) -> str:
    if not names:
        return ""
    return f"forwarding of {', '.join(sorted(names))} is switched on for them until the cluster ends"
