"""The packet rules of one cluster, as values. Pure.

Pods go out under the machine's address (masquerade), and what they asked for comes back to them; nothing else
does. Traffic between pods is left alone: it is not even tracked, so that it costs what it did before.

One table of nftables holds it all, ``gangline-ID``. The names of its chains ``forwarding-INTERFACE`` tell
which interfaces do not forward by themselves: whoever removes the table switches those off again.

Source: linux/netfilter/nf_tables.h; the wiki of nftables, "Netfilter hooks" (priorities).
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

TABLE_PREFIX = "gangline-"
BRIDGE_PREFIX = "gl-"
"""What the names of all clusters' bridges begin with."""
FORWARDING_PREFIX = "forwarding-"
_LOOPBACK = "lo"

IIF, OIF = 6, 7  # NFT_META_IIFNAME, NFT_META_OIFNAME
SOURCE, DESTINATION = 12, 16  # offsets in the header of IPv4
_EQUAL, _DIFFERS = 0, 1
_ESTABLISHED_OR_RELATED = 0b110  # 1 << (IP_CT_ESTABLISHED + 1) | 1 << (IP_CT_RELATED + 1)
_DROP, _ACCEPT = 0, 1
_INTERFACE_BYTES = 16

Expression = dict[str, Any]
Rule = list[Expression]


@dataclass(frozen=True, slots=True)
class RuleChain:
    """One chain; without a ``hook`` no packet ever passes it.

    Attributes:
        name: of the chain.
        rules: in order; what no rule decides is accepted.
        type: ``filter`` or ``nat``.
        hook: ``prerouting``, ``input``, ``forward`` or ``postrouting``.
        priority: lower ones are asked first.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    type: str = "filter"
    hook: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Ways:
    """What the rules depend on.

    Attributes:
        cluster_id: of the cluster.
        bridge: its bridge.
        subnet: addresses of its pods; the first one is the bridge's.
        switched: interfaces that forward only because clusters of ours switched it on.
    """

    cluster_id: str
    bridge: str
    subnet: ipaddress.IPv4Network
    switched: frozenset[str] = frozenset()

    @property
    def table(self) -> str:
        """Name of the cluster's table."""
        return f"{TABLE_PREFIX}{self.cluster_id}"


def chains_of(ways: Ways) -> list[RuleChain]:
    """Return the chains of a cluster's table."""
    bridge, subnet = ways.bridge, ways.subnet
    gateway = ipaddress.IPv4Network(subnet.network_address + 1)
    between_pods = [
        *interface(IIF, bridge),
        *address(SOURCE, subnet),
        *address(DESTINATION, subnet),
        *address(DESTINATION, gateway, _DIFFERS),
        expression("notrack"),
    ]
    forward = [
        [*interface(IIF, bridge), *interface(OIF, bridge), verdict(_ACCEPT)],
        [*interface(OIF, bridge), *_answers(), verdict(_ACCEPT)],
        [*interface(OIF, bridge), verdict(_DROP)],
        [*interface(IIF, bridge), *address(SOURCE, subnet, _DIFFERS), verdict(_DROP)],
    ]
    for name in sorted(ways.switched):  # it forwards for pods, and for nobody else
        forward.append([*interface(IIF, name), *interface(OIF, BRIDGE_PREFIX, whole=False), verdict(_ACCEPT)])
        forward.append([*interface(IIF, name), verdict(_DROP)])
    own = [*address(DESTINATION, gateway), *interface(IIF, bridge, _DIFFERS)]
    masquerade = [
        *address(SOURCE, subnet),
        *interface(OIF, bridge, _DIFFERS),
        *interface(OIF, _LOOPBACK, _DIFFERS),
        expression("masq"),
    ]
    return [
        RuleChain("between-pods", (between_pods,), hook="prerouting", priority=-300),
        RuleChain("in", tuple(forward), hook="forward"),
        RuleChain(
            "own-address", ([*own, *interface(IIF, _LOOPBACK, _DIFFERS), verdict(_DROP)],), hook="input"
        ),
        RuleChain("out", (masquerade,), type="nat", hook="postrouting", priority=100),
        *(RuleChain(f"{FORWARDING_PREFIX}{name}") for name in sorted(ways.switched)),
    ]


def switched_in(chain_names: Iterable[str]) -> frozenset[str]:
    """Return the interfaces that the names of a table's chains tell to have been switched."""
    names = (name for name in chain_names if name.startswith(FORWARDING_PREFIX))
    return frozenset(name.removeprefix(FORWARDING_PREFIX) for name in names)


# Expressions: each loads a value into a register, compares it, or decides.


def expression(name: str, prefix: str = "", **values: Any) -> Expression:
    """Return an expression of a rule; ``prefix``: of its attributes, where it differs from the name."""
    attributes = [(f"NFTA_{prefix or name.upper()}_{key.upper()}", value) for key, value in values.items()]
    data = [("NFTA_EXPR_DATA", {"attrs": attributes})] if name != "notrack" else []
    return {"attrs": [("NFTA_EXPR_NAME", name), *data]}


def compare(value: bytes, operator: int = _EQUAL) -> Expression:
    """Go on only where the value that was loaded equals this one, or is another one."""
    return expression("cmp", sreg=1, op=operator, data={"attrs": [("NFTA_DATA_VALUE", value)]})


def masked(mask: bytes) -> Expression:
    """Keep some bits of the value that was loaded."""
    values: dict[str, Any] = {
        "mask": {"attrs": [("NFTA_DATA_VALUE", mask)]},
        "xor": {"attrs": [("NFTA_DATA_VALUE", bytes(len(mask)))]},
    }
    return expression("bitwise", sreg=1, dreg=1, len=len(mask), **values)


def interface(which: int, name: str, operator: int = _EQUAL, *, whole: bool = True) -> Rule:
    """Compare the interface that a packet came in or goes out by, by its name or what that begins with."""
    raw = name.encode()
    raw = raw.ljust(_INTERFACE_BYTES, b"\0") if whole else raw
    return [expression("meta", dreg=1, key=which), compare(raw, operator)]


def address(offset: int, network: ipaddress.IPv4Network, operator: int = _EQUAL) -> Rule:
    """Compare the address at ``offset`` of the header of IPv4."""
    load = expression("payload", dreg=1, base=1, offset=offset, len=4)
    return [load, masked(network.netmask.packed), compare(network.network_address.packed, operator)]


def _answers() -> Rule:
    """Match packets of a connection that was opened from the other side, and errors about it."""
    state = struct.pack("=I", _ESTABLISHED_OR_RELATED)
    return [expression("ct", dreg=1, key=0), masked(state), compare(bytes(4), _DIFFERS)]


def verdict(code: int, chain: str = "") -> Expression:
    """Decide on the packet; ``chain``: where a jump leads."""
    parts: list[tuple[str, Any]] = [("NFTA_VERDICT_CODE", code)]
    if chain:
        parts.append(("NFTA_VERDICT_CHAIN", chain))
    return expression("immediate", dreg=0, data={"attrs": [("NFTA_DATA_VERDICT", {"attrs": parts})]})


def firewall_words(
    forward: Sequence[tuple[str, str]], all_chains: Collection[tuple[str, str]], bridge: str
) -> str:
    """Return what to say of a firewall that drops what it does not know; empty when there is none.

    Args:
        forward: table and name of the chains at the hook ``forward`` that drop by default.
        all_chains: table and name of every chain.
        bridge: of the cluster.
    """
    if not forward:
        return ""
    table, chain = forward[0]
    place = "DOCKER-USER" if ("filter", "DOCKER-USER") in all_chains else chain
    return (
        f"chain `{chain}` of this machine's firewall (table `{table}`) drops packets that it does not know: "
        f"if pods do not get out, run `iptables -I {place} -i {bridge} -j ACCEPT` and "
        f"`iptables -I {place} -o {bridge} -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT`"
    )
