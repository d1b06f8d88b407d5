"""Tables of nftables over netlink: replaced whole, read and removed. Linux, root; calls block for 10 ms."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gangline.cluster.node.network.egress.rules import RuleChain
from gangline.errors import ClusterError

_HOOKS = {"prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4}
_IPV4 = 2
_ANY_FAMILY = 0
_DROP = 0
_BEGIN, _END = 0x10, 0x11  # NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
BUFFER_BYTES = 64 * 1024 * 1024
"""A batch is sent in one piece and every message of it answered at once: room for 500 services of ten pods,
where that of a new socket ends at 150, and what does not fit is waited for without end."""


@dataclass(frozen=True, slots=True)
class FoundChain:
    """One chain of the machine, of whomever; ``drops``: a packet that no rule decides is dropped."""

    table: str
    name: str
    hook: str
    drops: bool


def replace_table(table: str, chains: Sequence[RuleChain]) -> None:
    """Put a table of IPv4 in the place of the one of that name, all at once.

    Raises:
        ClusterError: the kernel has no such tables or expressions, or refuses.
    """
    from pyroute2.netlink.nfnetlink import nftsocket as nft

    messages = [
        # Made first, for one that is not there cannot be removed.
        _message(nft.nft_table_msg, nft.NFT_MSG_NEWTABLE, name=table),
        _message(nft.nft_table_msg, nft.NFT_MSG_DELTABLE, name=table),
        _message(nft.nft_table_msg, nft.NFT_MSG_NEWTABLE, name=table),
    ]
    messages += _chains(table, chains) + _rules(table, chains)
    _send(messages)


def change_table(table: str, before: Sequence[RuleChain], after: Sequence[RuleChain]) -> None:
    """Turn the chains of a table that is there into others, all at once; equal ones are not touched.

    Raises:
        ClusterError: the kernel refuses.
    """
    from pyroute2.netlink.nfnetlink import nftsocket as nft

    old, new = {chain.name: chain for chain in before}, {chain.name for chain in after}
    gone = [name for name in old if name not in new]
    changed = [chain for chain in after if old.get(chain.name) != chain]
    flushed = [*gone, *(chain.name for chain in changed if chain.name in old)]
    _send(
        [
            *_chains(table, [chain for chain in changed if chain.name not in old]),
            *(_message(nft.nft_rule_msg, nft.NFT_MSG_DELRULE, table=table, chain=name) for name in flushed),
            *_rules(table, changed),
            # Last, for the rules that led to them are replaced by then.
            *(_message(nft.nft_chain_msg, nft.NFT_MSG_DELCHAIN, table=table, name=name) for name in gone),
        ]
    )


def _chains(table: str, chains: Sequence[RuleChain]) -> list[Any]:
    from pyroute2.netlink.nfnetlink import nftsocket as nft

    return [
        _message(nft.nft_chain_msg, nft.NFT_MSG_NEWCHAIN, table=table, **_described(chain))
        for chain in chains
    ]


def _rules(table: str, chains: Sequence[RuleChain]) -> list[Any]:
    """Return the messages that make the rules; every chain they jump to is there by then."""
    from pyroute2.netlink.nfnetlink import nftsocket as nft

    kind, number = nft.nft_rule_msg, nft.NFT_MSG_NEWRULE
    return [
        _message(kind, number, table=table, chain=chain.name, expressions=rule)
        for chain in chains
        for rule in chain.rules
    ]


def remove_table(table: str) -> None:
    """Remove a table of IPv4 if it is there.

    Raises:
        ClusterError: the kernel refuses.
    """
    from pyroute2.netlink.nfnetlink import nftsocket as nft

    if table in {chain.table for chain in read_chains()}:
        _send([_message(nft.nft_table_msg, nft.NFT_MSG_DELTABLE, name=table)])


def read_chains() -> list[FoundChain]:
    """Return all chains of the machine that packets of IPv4 may pass.

    Raises:
        ClusterError: the kernel has no tables.
    """
    from pyroute2.netlink.nfnetlink import nfgen_msg
    from pyroute2.netlink.nfnetlink import nftsocket as nft

    with _socket(_ANY_FAMILY) as netlink:
        found = list(netlink.request_get(nfgen_msg(), nft.NFT_MSG_GETCHAIN))
    hooks = {number: name for name, number in _HOOKS.items()}
    chains = []
    for message in found:
        if message["nfgen_family"] not in (_IPV4, nft.NFPROTO_INET):
            continue
        hook = message.get_attr("NFTA_CHAIN_HOOK")
        chains.append(
            FoundChain(
                table=message.get_attr("NFTA_CHAIN_TABLE"),
                name=message.get_attr("NFTA_CHAIN_NAME"),
                hook=hooks.get(hook.get_attr("NFTA_HOOK_HOOKNUM"), "") if hook else "",
                drops=bool(hook) and message.get_attr("NFTA_CHAIN_POLICY") == _DROP,
            )
        )
    return chains


def _described(chain: RuleChain) -> dict[str, Any]:
    if not chain.hook:
        return {"name": chain.name}
    place = [("NFTA_HOOK_HOOKNUM", _HOOKS[chain.hook]), ("NFTA_HOOK_PRIORITY", chain.priority)]
    return {"name": chain.name, "hook": {"attrs": place}, "type": chain.type}


def _message(kind: Any, number: int, **values: Any) -> Any:
    from pyroute2.netlink import NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST
    from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES

    message = kind()
    message["header"]["type"] = NFNL_SUBSYS_NFTABLES << 8 | number
    message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_APPEND
    message["nfgen_family"] = _IPV4
    message["attrs"] = [(kind.name2nla(name), value) for name, value in values.items()]
    return message


def _send(messages: list[Any]) -> None:
    """Send messages as one transaction: all are done or none."""
    from pyroute2.netlink import NLM_F_REQUEST
    from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES, nfgen_msg

    ends = []
    for number in (_BEGIN, _END):
        end = nfgen_msg()
        end["res_id"] = NFNL_SUBSYS_NFTABLES
        end["header"]["type"] = number
        end["header"]["flags"] = NLM_F_REQUEST
        ends.append(end)
    with _socket(_IPV4) as netlink:
        netlink.nlm_request_batch([ends[0], *messages, ends[1]])


@contextmanager
def _socket(family: int) -> Iterator[Any]:
    from pyroute2 import NetlinkError
    from pyroute2.nftables.main import NFTables

    try:
        netlink = NFTables(nfgen_family=family)
        try:
            for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
                netlink.asyncore.socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            yield netlink
        finally:
            netlink.close()
    except (NetlinkError, OSError) as error:
        code = error.code if isinstance(error, NetlinkError) else error.errno
        words = os.strerror(code) if code else "no reason given"
        raise ClusterError(f"the kernel's nf_tables refuse: {words}") from error
