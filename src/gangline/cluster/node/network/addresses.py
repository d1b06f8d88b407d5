"""Addresses of pods, from the cluster's subnet or from 127.77.0.0/16."""

from __future__ import annotations

import ipaddress
import re

from gangline.errors import ClusterError

LOOPBACK_POOL = "127.77.0.0/16"
NODE_ADDRESSES = 64
"""Kept for nodes: as many as a cluster may have."""
# node-1
_NODE_NAME = re.compile(r"node-(\d{1,3})")


def node_address(subnet: ipaddress.IPv4Network, node: str) -> str:
    """Return the address of a node: that of the bridge for ``node-0``, and for nodes of other names.

    ``node-1`` and those that follow have the last ones before the broadcast address, counted down. Pure.
    """
    match = _NODE_NAME.fullmatch(node)
    index = int(match[1]) if match else 0
    return str(
        subnet.broadcast_address - index if 0 < index <= NODE_ADDRESSES else subnet.network_address + 1
    )


class AddressPool:
    """Hands out addresses of one subnet, in a circle, so that a freed one rests before it is used again.

    The network's first address is the bridge's and its last the broadcast address; neither is given out, nor
    are the ``kept`` ones before the last.
    """

    def __init__(self, subnet: str, *, offset: int = 0, kept: int = 0) -> None:
        self._network = ipaddress.IPv4Network(subnet)
        self._count = self._network.num_addresses - 3 - kept
        self._next = offset % self._count
        self._taken: set[str] = set()

    def take(self) -> str:
        """Return a free address.

        Raises:
            ClusterError: every address is taken.
        """
        for _ in range(self._count):
            address = str(self._network.network_address + 2 + self._next)
            self._next = (self._next + 1) % self._count
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise ClusterError(f"no address of {self._network} is free: {self._count} pods have one")

    def reserve(self, address: str) -> None:
        """Mark an address as taken by a pod that was here before."""
        self._taken.add(address)

    def release(self, address: str) -> None:
        """Give an address back."""
        self._taken.discard(address)
