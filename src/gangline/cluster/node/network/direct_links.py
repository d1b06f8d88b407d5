"""Links from pod to pod of one gang, beside those to the bridge: what ranks send each other takes one hop.

By way of the bridge a packet passes two links, and the queue of a processor at each: a message of 1 kB and
its answer take 25 µs, over loopback 19 µs, over a link of the two pods' own 16 µs (100 kB: 64, 47, 40 µs; an
AMD EPYC of 2 cores). A pod keeps its one address: a route to the other's leads over the link, whose ends have
none. A link ends with either pod, and the route over it too.

A second route as long, but dearer, leads by the bridge: a program that sends by an interface with an address
(UCX, below MPICH) looks for the longest route of all, and takes the other pod for out of reach where that is
not on its own interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from gangline.cluster.node.shim import syscalls

if TYPE_CHECKING:
    from pyroute2 import IPRoute

LINKS_MAX: Final = 7
"""Of one pod: a gang of eight has all of its 28; in a larger one those are linked that start together."""

_LOOPBACK_INDEX: Final = 1
_SCOPE_LINK: Final = 253


def link_name(address: str) -> str:
    """Return the name, in a pod, of its link to the pod with an address; at most 14 bytes.

    Example:
        >>> link_name("10.244.0.12")
        'to-244-0-12'
    """
    return "-".join(["to", *str(ipaddress.IPv4Address(address)).split(".")[1:]])


@dataclass(slots=True)
class _End:
    """A pod that links may lead to: a path to its network namespace, that one's number, and who is linked."""

    group: str
    address: str
    namespace: str
    number: int
    linked: set[str] = field(default_factory=set)


class DirectLinks:
    """Links of the pods of all gangs on this machine. Linux, root.

    Cost: 10 ms a link in a thread of its own; a pod does not wait for them to start.

    Args:
        mtu_bytes: of each link.
    """

    def __init__(self, mtu_bytes: int) -> None:
        self._mtu_bytes = mtu_bytes
        self._ends: dict[str, _End] = {}
        self._groups: dict[str, list[str]] = {}
        self._thread = ThreadPoolExecutor(1, "gl-pairs")

    def join(self, uid: str, group: str, address: str, namespace: str) -> asyncio.Future[int] | None:
        """Link a pod with those of its group; returns at once, with how many links there will be.

        Args:
            uid: of the pod.
            group: its gang; nothing is done for a pod of none.
            address: the pod's.
            namespace: path of its network namespace.
        """
        if not group or uid in self._ends:
            return None
        if not (others := self._add(uid, group, address, namespace)):
            return None
        end = self._ends[uid]
        return asyncio.get_running_loop().run_in_executor(self._thread, self._connect, end, others)

    def adopt(self, uid: str, group: str, address: str, namespace: str) -> None:
        """Know a pod that an agent before this one has linked with those of its group that were there."""
        self._add(uid, group, address, namespace)

    def _add(self, uid: str, group: str, address: str, namespace: str) -> list[_End]:
        """Return to which pods of its group the pod has links: those that came last, and have some free."""
        self.leave(uid)  # a pod whose shim has died starts again in another namespace
        try:
            number = Path(namespace).stat().st_ino
        except OSError:
            return []  # it has ended just now
        group_uids = self._groups.setdefault(group, [])
        free = [other for other in reversed(group_uids) if len(self._ends[other].linked) < LINKS_MAX]
        self._ends[uid] = _End(group, address, namespace, number, set(free[:LINKS_MAX]))
        group_uids.append(uid)
        others = [self._ends[other] for other in free[:LINKS_MAX]]
        for other in others:
            other.linked.add(uid)
        return others

    def leave(self, uid: str) -> None:
        """The pod has ended, and its links with it."""
        end = self._ends.pop(uid, None)
        if end is None:
            return
        for other in end.linked:
            self._ends[other].linked.discard(uid)
        others = self._groups[end.group]
        others.remove(uid)
        if not others:
            del self._groups[end.group]

    def close(self) -> None:
        """Make no more links; those that are there stay."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _connect(self, end: _End, others: list[_End]) -> int:
        made = 0
        for other in others:
            try:
                self._pair(end, other)
                made += 1
            except (ProcessLookupError, FileNotFoundError):
                continue  # one of the two has ended just now
            except Exception as error:  # noqa: BLE001 - there is the way by the bridge
                structlog.get_logger().warning(
                    "no link between two pods", one=end.address, other=other.address, error=repr(error)
                )
        return made

    def _pair(self, one: _End, other: _End) -> None:
        mine, theirs = link_name(other.address), link_name(one.address)
        with _opened(one) as own, _opened(other) as peer:
            try:
                with _inside(own) as netlink:
                    far = {"ifname": theirs, "net_ns_fd": peer, "mtu": self._mtu_bytes}
                    netlink.link("add", ifname=mine, kind="veth", mtu=self._mtu_bytes, peer=far)
                with _inside(peer) as netlink:
                    _lead(netlink, theirs, one.address)
                with _inside(own) as netlink:
                    _lead(netlink, mine, other.address)
            except Exception:
                with _inside(own) as netlink:
                    for index in netlink.link_lookup(ifname=mine):
                        netlink.link("del", index=index)  # no way that leads nowhere stays
                raise


@contextmanager
def _opened(end: _End) -> Iterator[int]:
    """Open a pod's namespace; raises OSError when the path leads to another one by now."""
    descriptor = os.open(end.namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_ino != end.number:
            raise ProcessLookupError(end.namespace)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _inside(namespace: int) -> Iterator[IPRoute]:
    """Take this thread into a network namespace, and back out of it."""
    from pyroute2 import IPRoute

    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.setns(namespace, syscalls.CLONE_NEWNET)
        with IPRoute() as netlink:
            yield netlink
    finally:
        syscalls.setns(home, syscalls.CLONE_NEWNET)
        os.close(home)


def _lead(netlink: IPRoute, interface: str, address: str) -> None:
    """Set a link's end up, without an address of its own, and have it lead to another pod's."""
    (index,) = netlink.link_lookup(ifname=interface)
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6 gives it none
        Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1", encoding="ascii")
    netlink.link("set", index=index, state="up")
    own = min({one["index"] for one in netlink.get_addr(family=socket.AF_INET)} - {_LOOPBACK_INDEX})
    for way, metric in ((index, 0), (own, 1)):
        netlink.route("replace", dst=f"{address}/32", oif=way, priority=metric, scope=_SCOPE_LINK)
