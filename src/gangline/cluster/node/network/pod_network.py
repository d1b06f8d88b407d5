"""The interfaces of network isolation: one bridge for the cluster, one veth pair for each pod, over netlink.

Interface names are at most 15 bytes, so a pod's is made from hashes: ``gl`` + 5 digits of the cluster + 8 of
the pod's uid. Everything with the cluster's prefix that belongs to no living pod is swept at start.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.cluster.node.network.addresses import node_address
from gangline.cluster.node.network.direct_links import DirectLinks
from gangline.cluster.node.network.egress.way_out import WayOut
from gangline.cluster.node.network.host_names import PodHost
from gangline.cluster.node.shim import network_interface, syscalls
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from pyroute2 import AsyncIPRoute

_MAC_PREFIX = (0x02, 0x67)
"""Of addresses that are administered locally and of one station: IEEE 802, section 8."""
LINK_MTU_BYTES = 65535
"""As loopback: no packet leaves this machine, and gradients are large."""

INTERFACE_IN_POD = "eth0"
_COLLECT_AFTER_S = 1.0
_NODES = "nodes"
"""What links between nodes belong to."""


def interface_prefix(cluster_id: str) -> str:
    """Return what the names of all pod links of a cluster begin with."""
    return f"gl{cluster_id[:5]}"


def interface_name(cluster_id: str, pod_uid: str) -> str:
    """Return the host end of a pod's link, 15 bytes."""
    return interface_prefix(cluster_id) + hashlib.sha256(pod_uid.encode()).hexdigest()[:8]


def mac_address(address: str) -> str:
    """Return the hardware address that belongs to an address of IPv4.

    Whoever has the address has this one: what peers know of their neighbours stays right when a pod starts
    again, or another one follows it. Else they would send to the old one for up to a minute.
    """
    octets = (*_MAC_PREFIX, *ipaddress.IPv4Address(address).packed)
    return ":".join(f"{octet:02x}" for octet in octets)


class PodNetwork:
    """Bridge and links of one cluster; one netlink socket is kept open. Linux, root.

    Cost: a link 2 ms. Removing one takes the kernel 16 ms, so a pod's link is left to go with its namespace
    (the kernel removes those in batches), and what is still there a second later is removed in a thread.

    Args:
        cluster_id: of the cluster.
        bridge: its name.
        subnet: addresses of pods, the first is the bridge's.
        resolv: file for the pods' ``resolv.conf``.
        hosts: returns all pods.
        is_one_node: whether all nodes have the bridge's address, where alone a kubelet's port listens.

    Attributes:
        way_out: how pods reach the outside; to be opened once the bridge is.
        direct: links between pods of one gang, and between nodes after the first.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        bridge: str,
        subnet: str,
        resolv: Path,
        hosts: Callable[[], Iterable[PodHost]],
        is_one_node: bool = False,
    ) -> None:
        self._cluster_id = cluster_id
        self._is_one_node = is_one_node
        self._nodes: dict[str, int] = {}
        self._nodes_lock = asyncio.Lock()
        self._bridge = bridge
        self.subnet = ipaddress.IPv4Network(subnet)
        self.gateway = str(self.subnet.network_address + 1)
        self.way_out = WayOut(
            cluster_id=cluster_id, bridge=bridge, subnet=self.subnet, resolv=resolv, hosts=hosts
        )
        self.direct = DirectLinks(LINK_MTU_BYTES)
        self._netlink: AsyncIPRoute | None = None
        self._bridge_index = 0
        self._removals = ThreadPoolExecutor(1, "gl-links")
        self._ended: set[str] = set()
        self._collector: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Make the bridge, or take over the one that is there.

        Raises:
            ClusterError: the kernel refuses, with its reason.
        """
        from pyroute2 import AsyncIPRoute, NetlinkError

        self._netlink = AsyncIPRoute()
        await self._netlink.setup_endpoint()
        try:
            found = list(await self._netlink.link_lookup(ifname=self._bridge))
            if not found:
                # An address of its own: else it is that of some link, and changes as pods come and go.
                own = mac_address(self.gateway)
                await self._netlink.link("add", ifname=self._bridge, kind="bridge", address=own)
                found = list(await self._netlink.link_lookup(ifname=self._bridge))
            self._bridge_index = int(found[0])
            await self._netlink.addr(
                "replace", index=self._bridge_index, address=self.gateway, prefixlen=self.subnet.prefixlen
            )
            await self._netlink.link("set", index=self._bridge_index, state="up")
        except NetlinkError as error:
            raise ClusterError(f"cannot set up the bridge `{self._bridge}`: {error}") from error

    def node_address(self, node: str) -> str:
        """Return the address of a node and of its pods with ``hostNetwork``; the first has the bridge's."""
        return self.gateway if self._is_one_node else node_address(self.subnet, node)

    async def node_namespace(self, address: str) -> str:
        """Return the path of the network namespace of a node after the first; it is made when a pod needs it.

        It lives as long as this process, or a pod in it, and so does its link. The interface has the name of
        the bridge: programs on several nodes are told one name of an interface for all of them.

        Raises:
            ClusterError: the kernel refuses.
        """
        async with self._nodes_lock:
            if address not in self._nodes:
                loop, namespace = asyncio.get_running_loop(), -1
                # Its one thread leaves the machine's network, and ends.
                with ThreadPoolExecutor(1, "gl-node") as inside:
                    try:
                        namespace = await loop.run_in_executor(inside, _new_network)
                        peer: dict[str, str | int] = {"ifname": self._bridge, "net_ns_fd": namespace}
                        await self._add_link(address, peer, address)
                        place = (self._bridge, address, self.subnet.prefixlen, self.gateway)
                        await loop.run_in_executor(inside, network_interface.configure_interface, *place)
                    except (OSError, ClusterError) as error:
                        if namespace >= 0:
                            os.close(namespace)
                        raise ClusterError(f"cannot make the network of node {address}: {error}") from error
                self._nodes[address] = namespace
                self.direct.join(address, _NODES, address, f"/proc/{os.getpid()}/fd/{namespace}")
            return f"/proc/{os.getpid()}/fd/{self._nodes[address]}"

    def take_over_node(self, address: str, pid: int) -> None:
        """Keep the network of a node in which an agent before this one has started a pod."""
        if address == self.gateway or address in self._nodes:
            return
        try:
            namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # the pod has ended just now
        if os.path.samestat(os.fstat(namespace), Path("/proc/self/ns/net").stat()):
            os.close(namespace)  # it had not entered it yet
        else:
            self._nodes[address] = namespace
            self.direct.adopt(address, _NODES, address, f"/proc/{os.getpid()}/fd/{namespace}")

    async def add_link(self, pod_uid: str, pid: int, address: str) -> None:
        """Make a link between the bridge and ``eth0`` of the network namespace of process ``pid``.

        Args:
            pod_uid: of the pod.
            pid: a process in its namespace.
            address: the pod's, from which the hardware address of ``eth0`` is made.

        Raises:
            ClusterError: the kernel refuses.
        """
        await self._add_link(pod_uid, {"ifname": INTERFACE_IN_POD, "net_ns_pid": pid}, address)

    async def _add_link(self, owner: str, peer: dict[str, str | int], address: str) -> None:
        from pyroute2 import NetlinkError

        assert self._netlink is not None
        name = interface_name(self._cluster_id, owner)
        for last in (False, True):
            try:
                await self._netlink.link(
                    "add",
                    ifname=name,
                    kind="veth",
                    mtu=LINK_MTU_BYTES,
                    peer={**peer, "mtu": LINK_MTU_BYTES, "address": mac_address(address)},
                    master=self._bridge_index,
                    state="up",
                )
                # A bridge sends nothing back to where it came from, but a service may lead a pod to itself.
                for index in await self._netlink.link_lookup(ifname=name):
                    await self._netlink.brport("set", index=index, mode=1)
                return
            except NetlinkError as error:
                if last:
                    raise ClusterError(f"cannot make the link `{name}`: {error}") from error
                await self._remove(name)  # a leftover of the same pod

    def end_link(self, pod_uid: str) -> None:
        """The pod's processes have ended: see to it that its link goes too."""
        self.direct.leave(pod_uid)
        self._ended.add(interface_name(self._cluster_id, pod_uid))
        if self._collector is None or self._collector.done():
            self._collector = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        while self._ended:
            await asyncio.sleep(_COLLECT_AFTER_S)
            ended, self._ended = self._ended, set()
            for name in await self._existing() & ended:
                await self._remove(name)

    async def _existing(self) -> set[str]:
        """Return the names of all links of this cluster's pods."""
        assert self._netlink is not None
        prefix = interface_prefix(self._cluster_id)
        names = {link.get("ifname") or "" async for link in await self._netlink.get_links()}
        return {name for name in names if name.startswith(prefix)}

    async def sweep(self, living: set[str]) -> int:
        """Remove links of this cluster that belong to none of the living pods' uids; return how many."""
        kept = {interface_name(self._cluster_id, owner) for owner in living | self._nodes.keys()}
        left = await self._existing() - kept
        for name in left:
            await self._remove(name)
        return len(left)

    async def close(self, *, remove_bridge: bool) -> None:
        """Close the socket; take the bridge down when no pod is left on it."""
        if self._netlink is None:
            return
        if self._collector is not None:
            self._collector.cancel()
        for name in await self._existing() & self._ended:
            await self._remove(name)
        self.direct.close()
        await self.way_out.close(remove=remove_bridge)
        for namespace in self._nodes.values():
            os.close(namespace)
        if remove_bridge:
            await self._remove(self._bridge)
        self._netlink.close()
        self._removals.shutdown(wait=False)

    async def _remove(self, name: str) -> None:
        await asyncio.get_running_loop().run_in_executor(self._removals, _remove_link, name)


def _new_network() -> int:
    """Take the calling thread into a new network namespace; return a descriptor that keeps it."""
    syscalls.unshare(syscalls.CLONE_NEWNET)
    network_interface.bring_up_loopback()
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _remove_link(name: str) -> None:
    from pyroute2 import IPRoute, NetlinkError

    with IPRoute() as netlink:
        for index in netlink.link_lookup(ifname=name):
            try:
                netlink.link("del", index=index)
            except NetlinkError:
                continue  # it went with its namespace
