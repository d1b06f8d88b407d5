"""What pods' names are answered with, what is passed on, and what their resolver's configuration says."""

import ipaddress
import random
import struct

import pytest

from gangline.cluster.node.network.egress.dns_message import read_question
from gangline.cluster.node.network.egress.names import answer_of, parse_hosts
from gangline.cluster.node.network.egress.resolv_conf import (
    ResolvConf,
    parse_resolv_conf,
    reachable_from_pods,
    render_resolv_conf,
)
from gangline.cluster.node.network.host_names import PodHost
from gangline.cluster.node.network.pod_network import mac_address

SUBNET = ipaddress.IPv4Network("10.213.0.0/20")
HOSTS = [
    PodHost("10.213.0.2", "train-worker-0", "train-worker-0", "train", "default", "default"),
    PodHost("10.213.0.3", "train-worker-0", "train-worker-0", "train", "other", "other"),
    PodHost("10.213.0.4", "lonely", "lonely", "", "default", "default"),
]
A, PTR, AAAA = 1, 12, 28
NO_SUCH_NAME = 3


def query(name: str, kind: int = A) -> bytes:
    """RFC 1035, section 4: id 7, one question, recursion desired."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def ask(name: str, kind: int = A, asker: str = "10.213.0.2", machine: dict[str, str] | None = None):
    """Return code and the data of the records, None when the question is passed on."""
    question = read_question(query(name, kind))
    assert question is not None
    answer = answer_of(question, asker, HOSTS, machine or {}, SUBNET)
    if answer is None:
        return None
    number, flags, questions, count, _, _ = struct.unpack_from("!6H", answer)
    assert (number, questions, flags & 0x8000) == (7, 1, 0x8000)
    place, found = len(query(name, kind)), []
    for _ in range(count):
        pointer, of, _, _, length = struct.unpack_from("!HHHIH", answer, place)
        assert (pointer, of) == (0xC00C, kind)  # to the name that was asked for
        found.append(answer[place + 12 : place + 12 + length])
        place += 12 + length
    assert place == len(answer)
    return flags & 0xF, found


def packed(*addresses: str) -> tuple[int, list[bytes]]:
    return 0, [ipaddress.IPv4Address(one).packed for one in addresses]


@pytest.mark.parametrize(
    ("name", "asker", "address"),
    [
        ("train-worker-0", "10.213.0.2", "10.213.0.2"),
        ("train-worker-0.train", "10.213.0.3", "10.213.0.3"),
        ("Train-Worker-0.TRAIN.other.svc.cluster.local", "10.213.0.2", "10.213.0.3"),
        ("lonely", "10.213.0.2", "10.213.0.4"),
    ],
)
def test_names_mean_what_they_mean_in_the_namespace_of_the_pod_that_asks(name, asker, address):
    assert ask(name, asker=asker) == packed(address)


def test_short_names_of_another_namespace_are_passed_on():
    assert ask("lonely", asker="10.213.0.3") is None
    assert ask("lonely", asker="10.213.15.254") is None


def test_pods_have_no_address_of_ipv6():
    assert ask("lonely", AAAA) == (0, [])


@pytest.mark.parametrize("name", ["gone.train.default.svc.cluster.local", "cluster.local", "gone.a.svc"])
def test_unknown_names_of_the_cluster_are_not_asked_for_outside(name):
    assert ask(name) == (NO_SUCH_NAME, [])


@pytest.mark.parametrize("name", ["pypi.org", "svc.org", "notcluster.local", "corp"])
def test_all_other_names_are_passed_on(name):
    assert ask(name) is None


def test_addresses_have_names():
    def reverse(address: str) -> str:
        return ".".join(reversed(address.split("."))) + ".in-addr.arpa"

    name = b"\x0etrain-worker-0\x05train\x07default\x03svc\x07cluster\x05local\0"
    assert ask(reverse("10.213.0.2"), PTR) == (0, [name])
    assert ask(reverse("10.213.9.9"), PTR) == (NO_SUCH_NAME, [])
    assert ask(reverse("8.8.8.8"), PTR) is None
    mapped = "2.0.0.0.5.d.a.0" + ".f" * 4 + ".0" * 20 + ".ip6.arpa"
    assert ask(mapped, PTR) == (NO_SUCH_NAME, [])


def test_hosts_of_the_machine_are_known_but_for_its_loopback():
    machine = parse_hosts("127.0.1.1 laptop\n::1 ip6\n192.168.1.5 nas NAS.corp # disk\nnonsense here\n")

    assert machine == {"nas": "192.168.1.5", "nas.corp": "192.168.1.5"}
    assert ask("nas.corp", machine=machine) == packed("192.168.1.5")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        query("a")[:11],
        query("a")[:-1],
        query("a")[:2] + b"\x81\x00" + query("a")[4:],  # an answer
        query("a")[:2] + b"\x28\x00" + query("a")[4:],  # an update (RFC 2136)
        query("a")[:4] + b"\0\2" + query("a")[6:],  # two questions
        query("a")[:12] + b"\xc0\x0c\0\1\0\1",  # a name that points to itself
    ],
)
def test_what_is_no_single_question_is_not_read(message):
    assert read_question(message) is None


def test_no_bytes_confuse_the_reader():
    """10,000 messages of random bytes behind a good header, and questions with bytes changed."""
    rng = random.Random(7)
    for _ in range(5000):
        read_question(query("a")[:12] + rng.randbytes(rng.randrange(300)))
        changed = bytearray(
            query("train-worker-0.train.default.svc.cluster.local", rng.choice([A, PTR, 255]))
        )
        for _ in range(3):
            changed[rng.randrange(12, len(changed))] = rng.randrange(256)
        question = read_question(bytes(changed))
        if question is not None:
            answer_of(question, "10.213.0.2", HOSTS, {}, SUBNET)


def test_resolv_conf_of_the_machine_is_kept_but_for_who_is_asked():
    text = "# made by hand\nsearch corp.example lab\nnameserver 127.0.0.53\nnameserver fe80::1%eth0\n"
    text += "nameserver x\noptions edns0 trust-ad\nsortlist 10.0.0.0\n"
    text += "nameserver 192.168.1.1\nnameserver 9.9.9.9\n"

    conf = parse_resolv_conf(text)

    assert conf == ResolvConf(
        ("127.0.0.53", "fe80::1%eth0", "192.168.1.1"), ("search corp.example lab", "options edns0 trust-ad")
    )
    assert reachable_from_pods(conf) == ("192.168.1.1",)
    assert render_resolv_conf(ResolvConf(("10.213.0.1",), conf.others), "words") == (
        "# words\nsearch corp.example lab\noptions edns0 trust-ad\nnameserver 10.213.0.1\n"
    )


def test_machine_without_name_servers_asks_itself():
    """resolv.conf(5): the default is the name server on the local machine."""
    assert parse_resolv_conf("").nameservers == ("127.0.0.1",)


def test_hardware_address_is_local_of_one_station_and_one_for_each_address():
    assert mac_address("10.213.0.2") == "02:67:0a:d5:00:02"
    first = int(mac_address("10.213.0.2")[:2], 16)
    assert first & 0b10
    assert not first & 0b1
