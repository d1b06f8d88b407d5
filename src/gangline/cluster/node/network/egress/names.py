"""What the pods' name server knows by itself: pods, services, hosts in the machine's own hosts file. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from gangline.cluster.node.network.egress.dns_message import (
    ANY,
    NO_SUCH_NAME,
    PTR,
    SRV,
    A,
    Question,
    write_answer,
)
from gangline.cluster.node.network.host_names import PodHost
from gangline.cluster.node.network.services import ClusterService

CLUSTER_DOMAINS = ("cluster.local", "svc")
_REVERSE, _REVERSE_MAPPED = ".in-addr.arpa", ".f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa"
"""The second is of addresses of IPv4 as sockets of IPv6 show them, ``::ffff:10.213.0.2``."""


def answer_of(
    question: Question,
    asker: str,
    hosts: Iterable[PodHost],
    machine_hosts: Mapping[str, str],
    subnet: ipaddress.IPv4Network,
    services: Iterable[ClusterService] = (),
) -> bytes | None:
    """Return the answer to a question, None where the machine's name servers are to be asked.

    Args:
        question: what is asked.
        asker: address of the pod that asks: short names are those of its namespace.
        hosts: all pods.
        machine_hosts: name -> address of IPv4, from the machine's ``/etc/hosts``.
        subnet: addresses of pods.
        services: all of the cluster.
    """
    known = list(hosts)
    if question.type == PTR or question.name.endswith((_REVERSE, _REVERSE_MAPPED)):
        return _reverse(question, known, subnet, services)
    namespace = next((host.namespace for host in known if host.address == asker), "")
    if (answer := _service_answer(question, namespace, services)) is not None:
        return answer
    found = [host.address for host in known if question.name in _names_seen_from(namespace, host)]
    if not found and question.name in machine_hosts:
        found = [machine_hosts[question.name]]
    if found:
        # Of any other type there is nothing: pods have addresses of IPv4 only.
        return write_answer(question, addresses=found if question.type in (A, ANY) else ())
    if any(question.name == domain or question.name.endswith(f".{domain}") for domain in CLUSTER_DOMAINS):
        return write_answer(question, code=NO_SUCH_NAME)
    return None


def _service_answer(question: Question, namespace: str, services: Iterable[ClusterService]) -> bytes | None:
    """Answer for a service, one of its ports (``_PORT._PROTOCOL.NAME``) or one of its pods (``HOST.NAME``).

    Source: Kubernetes DNS-Based Service Discovery, version 1.1.0.
    """
    name = question.name.removesuffix(".cluster.local")
    labels = name.removesuffix(".svc").split(".")
    readings = [(labels[:-2], labels[-2], labels[-1])] if len(labels) > 1 else []
    if not name.endswith(".svc"):
        readings.append((labels[:-1], labels[-1], namespace))
    known = {(service.namespace, service.name): service for service in services}
    for before, wanted, of_namespace in readings:
        service = known.get((of_namespace, wanted))
        answer = _of_service(question, service, before) if service is not None else None
        if answer is not None:
            return answer
    return None


def _of_service(question: Question, service: ClusterService, before: list[str]) -> bytes | None:
    """Answer for a name below a service; None for one that has no pod."""
    if service.external_name:
        return None if before else write_answer(question, alias=service.external_name)
    own = f"{service.name}.{service.namespace}.svc.{CLUSTER_DOMAINS[0]}"
    pod_names = {address: name or address.replace(".", "-") for address, name in service.pods}
    if not before:
        addresses = [service.address] if service.address else list(pod_names)
        ports = service.ports if question.type in (SRV, ANY) else ()
    elif len(before) == 1:
        addresses, ports = [address for address, name in pod_names.items() if name == before[0]], ()
    elif len(before) == 2:
        wanted = (before[0], before[1])
        ports = tuple(one for one in service.ports if (f"_{one.name}", f"_{one.protocol}") == wanted)
        addresses = []
    else:
        return None
    places = [(port.number, own) for port in ports]
    if not service.address:
        places = [(number, f"{pod_names[to]}.{own}") for port in ports for to, number in port.targets]
    if not addresses and not places:
        return None
    return write_answer(
        question,
        addresses=addresses if question.type in (A, ANY) else (),
        places=places if question.type in (SRV, ANY) else (),
    )


def _names_seen_from(namespace: str, host: PodHost) -> list[str]:
    """Return the names by which a host is known in a namespace."""
    names = [name.lower() for name in host.qualified]
    if host.namespace == namespace:
        return names
    return names[:3] if host.subdomain else []  # those that name its namespace


def _reverse(
    question: Question,
    hosts: Iterable[PodHost],
    subnet: ipaddress.IPv4Network,
    services: Iterable[ClusterService],
) -> bytes | None:
    """Answer for addresses of pods and services; the machine's name servers know none of them."""
    if question.name.endswith(_REVERSE_MAPPED):
        return write_answer(question, code=NO_SUCH_NAME)  # those that have a name have it in /etc/hosts
    octets = question.name.removesuffix(_REVERSE).split(".")
    try:
        address = ipaddress.IPv4Address(".".join(reversed(octets)))
    except ValueError:
        return None
    for service in services:
        if service.address == str(address):
            name = f"{service.name}.{service.namespace}.svc.{CLUSTER_DOMAINS[0]}"
            return write_answer(question, name=name)
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
