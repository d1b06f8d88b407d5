"""What the pods' network makes of Services and EndpointSlices: targets, names and packet rules."""

import ipaddress
import struct

import msgspec
import pytest

from gangline.api.core import EndpointSlice, Service
from gangline.cluster.node.network.egress.dns_message import read_question
from gangline.cluster.node.network.egress.names import answer_of
from gangline.cluster.node.network.egress.service_rules import service_chains
from gangline.cluster.node.network.services import ClusterService, ServicePort, cluster_services

A, CNAME, PTR, SRV = 1, 5, 12, 33
PORT = ServicePort("http", "tcp", 80, targets=(("10.213.0.2", 8080), ("10.213.0.3", 8081)))
PODS = (("10.213.0.2", "web-0"), ("10.213.0.3", ""))
WEB = ClusterService("default", "web", address="10.96.0.7", ports=(PORT,), pods=PODS)
HEADLESS = ClusterService("default", "team", ports=(PORT,), pods=PODS)
OUTSIDE = ClusterService("default", "store", external_name="data.example")


def service(**spec: object) -> Service:
    return msgspec.convert({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}, Service)


def piece(*endpoints: dict[str, object], ports: list[dict[str, object]]) -> EndpointSlice:
    labels = {"kubernetes.io/service-name": "web"}
    body = {"metadata": {"name": "web-1", "namespace": "default", "labels": labels}}
    return msgspec.convert(body | {"endpoints": list(endpoints), "ports": ports}, EndpointSlice)


def test_ports_of_a_service_lead_to_the_ready_pods_of_all_its_slices():
    ready = {"addresses": ["10.213.0.2"], "conditions": {"ready": True}, "hostname": "web-0"}
    unknown = {"addresses": ["10.213.0.3"]}
    starting = {"addresses": ["10.213.0.4"], "conditions": {"ready": False}}
    slices = [
        piece(ready, starting, ports=[{"name": "http", "port": 8080, "protocol": "TCP"}]),
        piece(unknown, ports=[{"name": "http", "port": 8081, "protocol": "TCP"}]),
    ]

    found = cluster_services(
        [service(clusterIP="10.96.0.7", ports=[{"name": "http", "port": 80, "targetPort": "web"}])], slices
    )

    assert found == [WEB]


@pytest.mark.parametrize(
    ("addresses", "port"),
    [
        ([], 80),
        (["web"], 80),
        (["fd00::1"], 80),
        (["127.0.0.1"], 80),
        (["169.254.169.254"], 80),
        (["0.0.0.0"], 80),
        (["224.0.0.1"], 80),
        (["10.213.0.2"], 70000),
        (["10.213.0.2"], -1),
    ],
)
def test_what_a_slice_must_not_say_leads_nowhere_and_harms_no_other(addresses, port):
    ports = [{"port": port, "protocol": "TCP"}]
    slices = [
        piece({"addresses": addresses}, ports=ports),
        piece({"addresses": ["10.213.0.3"]}, ports=[{"port": 80}]),
    ]

    (found,) = cluster_services([service(clusterIP="10.96.0.7", ports=[{"port": 80}])], slices)

    assert found.ports[0].targets == (("10.213.0.3", 80),)
    assert service_chains([found], bridge="gl-x", gateway="10.213.0.1")


@pytest.mark.parametrize("address", ["8.8.8.8", "127.0.0.1", "10.213.0.2", "fd00::1"])
def test_addresses_that_are_not_of_services_are_never_led_elsewhere(address):
    assert rules_of(ClusterService("default", "web", address=address, ports=(PORT,)))["services"] == 0


def ask(name: str, kind: int, asker: str = "10.213.0.9") -> tuple[int, list[tuple[int, bytes]]] | None:
    """Return the code and the records (type, data) of the answer; None when it is left to others."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    message = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)
    question = read_question(message)
    assert question is not None
    subnet = ipaddress.IPv4Network("10.213.0.0/20")
    answer = answer_of(question, asker, [], {}, subnet, [WEB, HEADLESS, OUTSIDE])
    if answer is None:
        return None
    _, flags, _, count, _, _ = struct.unpack_from("!6H", answer)
    place, records = len(message), []
    for _ in range(count):
        _, of, _, _, length = struct.unpack_from("!HHHIH", answer, place)
        records.append((of, answer[place + 12 : place + 12 + length]))
        place += 12 + length
    return flags & 0xF, records


def encoded(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


@pytest.mark.parametrize(
    ("name", "kind", "records"),
    [
        ("web.default.svc.cluster.local", A, [(A, bytes([10, 96, 0, 7]))]),
        ("web.default.svc", A, [(A, bytes([10, 96, 0, 7]))]),
        ("web.default", A, [(A, bytes([10, 96, 0, 7]))]),
        ("team.default", A, [(A, bytes([10, 213, 0, 2])), (A, bytes([10, 213, 0, 3]))]),
        ("web-0.team.default.svc.cluster.local", A, [(A, bytes([10, 213, 0, 2]))]),
        ("10-213-0-3.team.default.svc.cluster.local", A, [(A, bytes([10, 213, 0, 3]))]),
        ("7.0.96.10.in-addr.arpa", PTR, [(PTR, encoded("web.default.svc.cluster.local"))]),
        ("store.default.svc.cluster.local", CNAME, [(CNAME, encoded("data.example"))]),
        (
            "_http._tcp.web.default.svc.cluster.local",
            SRV,
            [(SRV, struct.pack("!3H", 0, 100, 80) + encoded("web.default.svc.cluster.local"))],
        ),
        (
            "_http._tcp.team.default.svc.cluster.local",
            SRV,
            [
                (SRV, struct.pack("!3H", 0, 100, 8080) + encoded("web-0.team.default.svc.cluster.local")),
                (
                    SRV,
                    struct.pack("!3H", 0, 100, 8081) + encoded("10-213-0-3.team.default.svc.cluster.local"),
                ),
            ],
        ),
    ],
)
def test_names_of_services_lead_where_the_specification_says(name, kind, records):
    assert ask(name, kind) == (0, records)


def test_names_below_services_that_nobody_has_are_not_passed_on():
    assert ask("_http._udp.web.default.svc.cluster.local", SRV) == (3, [])
    assert ask("nobody.team.default.svc.cluster.local", A) == (3, [])
    assert ask("web.example", A) is None


def rules_of(*services: ClusterService) -> dict[str, int]:
    chains = service_chains(services, bridge="gl-x", gateway="10.213.0.1")
    return {chain.name: len(chain.rules) for chain in chains}


def test_a_change_of_pods_changes_the_chain_of_their_service_alone():
    fewer = PORT.targets[:1]
    other = ClusterService("default", "other", address="10.96.0.8", ports=(PORT,))
    less = ClusterService(
        "default", "web", address="10.96.0.7", ports=(ServicePort("", "tcp", 80, 0, fewer),)
    )
    before = service_chains([other, WEB], bridge="gl-x", gateway="10.213.0.1")
    after = service_chains([other, less], bridge="gl-x", gateway="10.213.0.1")

    changed = [new.name for old, new in zip(before, after, strict=True) if old != new]
    assert changed == ["10.96.0.7-tcp-80"]


def test_what_leads_to_no_pod_is_refused_and_services_without_an_address_have_no_rules():
    empty = ClusterService("default", "empty", address="10.96.0.9", ports=(ServicePort("", "udp", 53),))

    assert rules_of(empty, HEADLESS, OUTSIDE) | {"services": 0, "refused": 1} == rules_of(empty)
    assert rules_of(HEADLESS, OUTSIDE)["refused"] == 0
    assert rules_of(WEB) | {"10.96.0.7-tcp-80": 2, "services": 1, "refused": 1} == rules_of(WEB)


@pytest.mark.parametrize(("number", "is_led"), [(443, True), (16001, False)])
def test_the_api_server_answers_at_the_port_of_every_cluster_beside_its_own(number, is_led):
    port = ServicePort("https", "tcp", number, targets=(("10.213.0.1", 16001),))

    found = rules_of(ClusterService("default", "kubernetes", address="10.213.0.1", ports=(port,)))

    assert (f"10.213.0.1-tcp-{number}" in found, found["services"]) == (is_led, is_led)
