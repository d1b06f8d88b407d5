"""Which interfaces forward packets of IPv4: only those by which answers to pods come in, and only meanwhile.

``net.ipv4.ip_forward`` would make the whole machine a router; the switch of a single interface does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gangline.cluster.node.network.egress.rules import BRIDGE_PREFIX

SWITCHES = Path("/proc/sys/net/ipv4/conf")
ROUTES = Path("/proc/net/route")
_ALL = "all"


def interfaces_in(routes: str) -> frozenset[str]:
    """Return the interfaces that routes lead to, without loopback and our own bridges. Pure.

    Args:
        routes: text of ``/proc/net/route``.
    """
    names = {line.split("\t", 1)[0].strip() for line in routes.splitlines()[1:]}
    return frozenset(name for name in names if name and name != "lo" and not name.startswith(BRIDGE_PREFIX))


def read_interfaces() -> frozenset[str]:
    """Return the interfaces that this machine's routes lead to."""
    return interfaces_in(ROUTES.read_text(encoding="ascii", errors="replace"))


def forwards(interface: str) -> bool:
    """Return whether packets that come in by an interface are forwarded; False for one that is gone."""
    try:
        return (SWITCHES / interface / "forwarding").read_text(encoding="ascii").strip() != "0"
    except OSError:
        return False


def is_there(interface: str) -> bool:
    """Return whether an interface exists."""
    return (SWITCHES / interface).is_dir()


def is_router() -> bool:
    """Return whether the machine forwards by somebody's wish: ``net.ipv4.ip_forward`` is on."""
    return forwards(_ALL)


def switch(interfaces: Iterable[str], *, on: bool) -> list[str]:
    """Switch forwarding of interfaces that are not so already; return those that refused.

    Interfaces that are gone are passed over.
    """
    refused = []
    for name in interfaces:
        path = SWITCHES / name / "forwarding"
        if not is_there(name) or forwards(name) is on:
            continue
        try:
            path.write_text("1" if on else "0", encoding="ascii")
        except OSError as error:
            refused.append(f"{name} ({error.strerror})")
    return refused
