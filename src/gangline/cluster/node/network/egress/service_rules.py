"""The packet rules that lead from the addresses of services to their pods, as values. Pure.

A table of its own, ``gangline-ID-services``: one chain for each port of a service, so that a change of its
pods replaces that chain alone. Only the first packet of a connection passes them. A connection that comes
back to the bridge is given the bridge's address as its source, for the answer must come by here again: pods
answer each other directly.

Source: linux/netfilter/nf_tables.h, linux/netfilter/nf_conntrack_common.h.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache

from gangline.cluster.api_access import SERVICE_SUBNET
from gangline.cluster.node.network.egress.rules import (
    DESTINATION,
    IIF,
    OIF,
    Rule,
    RuleChain,
    address,
    compare,
    expression,
    interface,
    masked,
    verdict,
)
from gangline.cluster.node.network.services import ClusterService, Target

SERVICES_SUFFIX = "-services"
RULES_KEPT = 2048
"""Ports of services whose rules are not worked out again at a change of others; 30 KB each with ten pods."""

_PROTOCOLS = {"tcp": 6, "udp": 17}
_L4_PROTOCOL = 16  # NFT_META_L4PROTO
_JUMP = -3
_CONNECTION_STATUS = 2  # NFT_CT_STATUS
_TO_ANOTHER_PLACE = 1 << 5  # IPS_DST_NAT
_RANDOM = 1  # NFT_NG_RANDOM
_DESTINATION_NAT = 1
_IPV4 = 2
_SOURCE_OFFSET = 12
_UNREACHABLE_PORT = 3  # ICMP, RFC 792
_DNAT_PRIORITY, _SNAT_PRIORITY, _FILTER_PRIORITY = -100, 90, -10


def service_chains(services: Iterable[ClusterService], *, bridge: str, gateway: str) -> list[RuleChain]:
    """Return the chains of the table of services.

    Args:
        services: all of the cluster.
        bridge: its bridge.
        gateway: address of the bridge, where node ports are.
    """
    chains: list[RuleChain] = []
    by_address: list[Rule] = []
    refused: list[Rule] = []
    for service in services:
        if not _is_led(service.address, gateway):
            continue
        if service.address != gateway:
            # What led to a pod has the pod's address by then: this was for a port without pods, or for none.
            refused.append(_refusal(service.address))
        for port in service.ports:
            is_there = (service.address, port.number) in port.targets
            if port.protocol not in _PROTOCOLS or is_there or not port.targets:
                continue
            chain = f"{service.address}-{port.protocol}-{port.number}"
            chains.append(_port_chain(chain, port.targets, service.keeps_client))
            places = [(service.address, port.number)] + [(gateway, port.node_port)] * bool(port.node_port)
            by_address += [_jump(to, port.protocol, number, chain) for to, number in places]
    from_pods: Rule = [*interface(IIF, bridge), verdict(_JUMP, "services")]
    came_back = [
        *interface(OIF, bridge),
        expression("ct", dreg=1, key=_CONNECTION_STATUS),
        masked(struct.pack("=I", _TO_ANOTHER_PLACE)),
        compare(struct.pack("=I", _TO_ANOTHER_PLACE)),
        expression("masq"),
    ]
    return [
        *chains,
        RuleChain("services", tuple(by_address)),
        RuleChain("refused", tuple(refused)),
        RuleChain("from-pods", (from_pods,), type="nat", hook="prerouting", priority=_DNAT_PRIORITY),
        RuleChain(
            "from-machine",
            ([verdict(_JUMP, "services")],),
            type="nat",
            hook="output",
            priority=_DNAT_PRIORITY,
        ),
        RuleChain("back", (came_back,), type="nat", hook="postrouting", priority=_SNAT_PRIORITY),
        RuleChain(
            "without-pods",
            ([*interface(IIF, bridge), verdict(_JUMP, "refused")],),
            hook="forward",
            priority=_FILTER_PRIORITY,
        ),
    ]


def _is_led(address: str, gateway: str) -> bool:
    """Return whether an address is one of services: packets to all others are the machine's own affair."""
    return address == gateway or (
        address != "" and ipaddress.ip_address(address) in ipaddress.IPv4Network(SERVICE_SUBNET)
    )


def _place(to: str, protocol: str, number: int) -> Rule:
    """Match packets to an address and a port."""
    return [
        *address(DESTINATION, ipaddress.IPv4Network(to)),
        expression("meta", dreg=1, key=_L4_PROTOCOL),
        compare(bytes([_PROTOCOLS[protocol]])),
        expression("payload", dreg=1, base=2, offset=2, len=2),
        compare(struct.pack("!H", number)),
    ]


@lru_cache(RULES_KEPT)
def _jump(to: str, protocol: str, number: int, chain: str) -> Rule:
    return [*_place(to, protocol, number), verdict(_JUMP, chain)]


@lru_cache(RULES_KEPT)
def _refusal(to: str) -> Rule:
    return [*address(DESTINATION, ipaddress.IPv4Network(to)), _reject()]


@lru_cache(RULES_KEPT)
def _port_chain(name: str, targets: tuple[Target, ...], keeps_client: bool) -> RuleChain:
    return RuleChain(name, tuple(_choices(targets, keeps_client)))


def _choices(targets: tuple[Target, ...], keeps_client: bool) -> Iterator[Rule]:
    """Yield one rule for each pod, that of the k-th of n taken by one connection of n - k; the last by all.

    Where clients keep their pod, one number made from the client's address takes the place of dice.
    """
    count = len(targets)
    for index, target in enumerate(targets):
        left = count - index
        if left == 1:
            yield _lead_to(target)
        elif keeps_client:
            source = expression("payload", dreg=1, base=1, offset=_SOURCE_OFFSET, len=4)
            number = expression("hash", sreg=1, dreg=2, len=4, modulus=count, seed=1, type=0)
            chosen = expression("cmp", sreg=2, op=0, data=_data(struct.pack("=I", index)))
            yield [source, number, chosen, *_lead_to(target)]
        else:
            dice = expression("numgen", "NG", dreg=1, modulus=left, type=_RANDOM)
            yield [dice, compare(struct.pack("=I", 0)), *_lead_to(target)]


def _lead_to(target: Target) -> Rule:
    to, number = target
    return [
        expression("immediate", dreg=1, data=_data(ipaddress.IPv4Address(to).packed)),
        expression("immediate", dreg=2, data=_data(struct.pack("!H", number))),
        expression("nat", type=_DESTINATION_NAT, family=_IPV4, reg_addr_min=1, reg_proto_min=2),
    ]


def _data(value: bytes) -> dict[str, list[tuple[str, bytes]]]:
    return {"attrs": [("NFTA_DATA_VALUE", value)]}


def _reject() -> dict[str, object]:
    return expression("reject", type=0, icmp_code=_UNREACHABLE_PORT)
