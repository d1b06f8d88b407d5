"""What the pods' name server knows by itself: pods, and hosts in the machine's own hosts file. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from gangline.cluster.node.network.egress.dns_message import ANY, NO_SUCH_NAME, PTR, A, Question, write_answer
from gangline.cluster.node.network.host_names import PodHost

CLUSTER_DOMAINS = ("cluster.local", "svc")
_REVERSE, _REVERSE_MAPPED = ".in-addr.arpa", ".f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa"
"""The second is of addresses of IPv4 as sockets of IPv6 show them, ``::ffff:10.213.0.2``."""


def answer_of(
    question: Question,
    asker: str,
    hosts: Iterable[PodHost],
    machine_hosts: Mapping[str, str],
    subnet: ipaddress.IPv4Network,
) -> bytes | None:
    """Return the answer to a question, None where the machine's name servers are to be asked.

    Args:
        question: what is asked.
        asker: address of the pod that asks: short names are those of its namespace.
        hosts: all pods.
        machine_hosts: name -> address of IPv4, from the machine's ``/etc/hosts``.
        subnet: addresses of pods.
    """
    known = list(hosts)
    if question.type == PTR or question.name.endswith((_REVERSE, _REVERSE_MAPPED)):
        return _reverse(question, known, subnet)
    namespace = next((host.namespace for host in known if host.address == asker), "")
    found = [host.address for host in known if question.name in _names_seen_from(namespace, host)]
    if not found and question.name in machine_hosts:
        found = [machine_hosts[question.name]]
    if found:
        # Of any other type there is nothing: pods have addresses of IPv4 only.
        return write_answer(question, addresses=found if question.type in (A, ANY) else ())
    if any(question.name == domain or question.name.endswith(f".{domain}") for domain in CLUSTER_DOMAINS):
        return write_answer(question, code=NO_SUCH_NAME)
    return None


def _names_seen_from(namespace: str, host: PodHost) -> list[str]:
    """Return the names by which a host is known in a namespace."""
    names = [name.lower() for name in host.qualified]
    if host.namespace == namespace:
        return names
    return names[:3] if host.subdomain else []  # those that name its namespace


def _reverse(question: Question, hosts: Iterable[PodHost], subnet: ipaddress.IPv4Network) -> bytes | None:
    """Answer for addresses of pods; the machine's name servers know none of them."""
    if question.name.endswith(_REVERSE_MAPPED):
        return write_answer(question, code=NO_SUCH_NAME)  # those that have a name have it in /etc/hosts
    octets = question.name.removesuffix(_REVERSE).split(".")
    try:
        address = ipaddress.IPv4Address(".".join(reversed(octets)))
    except ValueError:
        return None
    if address not in subnet:
        return None
    for host in hosts:
        if host.address == str(address):
            return write_answer(question, name=host.qualified[0])
    return write_answer(question, code=NO_SUCH_NAME)


def parse_hosts(text: str) -> dict[str, str]:
    """Return name -> address of a hosts file: addresses of IPv4, none of loopback."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        try:
            parsed = ipaddress.IPv4Address(address)
        except ValueError:
            continue
        if not parsed.is_loopback:
            for name in names:
                found.setdefault(name.lower(), address)
    return found
