"""Addresses of pods, from the cluster's subnet or from 127.77.0.0/16."""

from __future__ import annotations

import ipaddress

from gangline.errors import ClusterError

LOOPBACK_POOL = "127.77.0.0/16"


class AddressPool:
    """Hands out addresses of one subnet, in a circle, so that a freed one rests before it is used again.

    The network's first address is the bridge's and its last the broadcast address; neither is given out.
    """

    def __init__(self, subnet: str, *, offset: int = 0) -> None:
        self._network = ipaddress.IPv4Network(subnet)
        self._count = self._network.num_addresses - 3
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
