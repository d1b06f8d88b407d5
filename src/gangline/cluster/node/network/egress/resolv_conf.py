"""The resolver's configuration: what the machine's says, and what pods are given in its place. Pure.

Source: resolv.conf(5).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAMESERVERS_MAX = 3
"""MAXNS of the C library: it passes over any further ones."""
_DEFAULT = "127.0.0.1"
"""What the C library asks when no name server is named."""


@dataclass(frozen=True, slots=True)
class ResolvConf:
    """One ``resolv.conf``.

    Attributes:
        nameservers: addresses of IPv4 or IPv6, the first to be asked first.
        others: its lines on search domains and options, as they are.
    """

    nameservers: tuple[str, ...] = (_DEFAULT,)
    others: tuple[str, ...] = ()


def parse_resolv_conf(text: str) -> ResolvConf:
    """Return what a ``resolv.conf`` says; lines that make no sense are passed over."""
    servers, others = [], []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0][0] in "#;":
            continue
        if words[0] == "nameserver" and len(words) > 1 and _is_address(words[1]):
            servers.append(words[1])
        elif words[0] in ("search", "domain", "options"):
            others.append(" ".join(words))
    return ResolvConf(tuple(servers[:NAMESERVERS_MAX]) or (_DEFAULT,), tuple(others))


def render_resolv_conf(conf: ResolvConf, comment: str) -> str:
    """Return the text of a file."""
    lines = [f"# {comment}", *conf.others, *(f"nameserver {server}" for server in conf.nameservers)]
    return "\n".join(lines) + "\n"


def with_dns_config(base: ResolvConf, policy: str, config: Mapping[str, Any]) -> ResolvConf:
    """Return what a pod with a ``dnsConfig`` sees: what it adds to ``base``, or it alone for policy ``None``.

    Source: Kubernetes documentation, "DNS for Services and Pods", pod's DNS config.
    """
    servers = () if policy == "None" else base.nameservers
    searches: list[str] = []
    options: dict[str, str] = {}
    for words in map(str.split, () if policy == "None" else base.others):
        if words[0] == "options":
            options |= {word.partition(":")[0]: word for word in words[1:]}
        else:
            searches += words[1:]
    searches += config.get("searches", ())
    for option in config.get("options", ()):
        name, value = option.get("name", ""), option.get("value")
        options[name] = f"{name}:{value}" if value else name
    others = [f"search {' '.join(dict.fromkeys(searches))}"] if searches else []
    others += [f"options {' '.join(options.values())}"] if options else []
    named = dict.fromkeys((*servers, *config.get("nameservers", ())))
    return ResolvConf(tuple(named)[:NAMESERVERS_MAX], tuple(others))


def reachable_from_pods(conf: ResolvConf) -> tuple[str, ...]:
    """Return the name servers that pods could ask themselves: of IPv4, and not on loopback."""
    addresses = (ipaddress.ip_address(server.partition("%")[0]) for server in conf.nameservers)
    return tuple(str(one) for one in addresses if one.version == 4 and not one.is_loopback)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
