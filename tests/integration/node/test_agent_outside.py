"""What pods with addresses of their own reach beyond the machine, and what reaches them."""

import ipaddress
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gangline.api.resources import ENDPOINT_SLICES, SERVICES
from gangline.cluster.paths import ClusterPaths
from outside_world import MACHINE, OUTSIDE, OutsideWorld

pytestmark = pytest.mark.root

TRANSFER = f"""
import urllib.request
url = "http://service.example/large"
print(len(urllib.request.urlopen(url, timeout=30).read()))
put = urllib.request.Request("http://{OUTSIDE}/", data=bytes(5_000_000), method="PUT")
print(urllib.request.urlopen(put, timeout=30).read().decode())
"""
AT_ONCE_S = 10.0
"""A neighbour whose hardware address has changed is given up after 25 s."""
LOOK_UP = """
import socket, sys, time
for name in sys.argv[1:]:
    began = time.monotonic()
    try:
        found = sorted({place[4][0] for place in socket.getaddrinfo(name, 80, socket.AF_INET)})
        print(name, len(found), found[0])
    except socket.gaierror:
        print(name, "unknown", "fast" if time.monotonic() - began < 1 else "slow")
"""
SERVER = """
import socket, time
server = socket.create_server(("", 7000))
print(open("/sys/class/net/eth0/address").read(), flush=True)
time.sleep(600)
"""
NAMED_SERVER = """
import select, socket
server = socket.create_server(("", 7000))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("", 7000))
while True:
    for ready in select.select([server, datagrams], [], [])[0]:
        if ready is server:
            server.accept()[0].sendall(b"tcp")
        else:
            datagrams.sendto(b"udp", datagrams.recvfrom(9)[1])
"""
"""Says on every connection and datagram how it was asked."""
ASK_SERVICE = """
import socket, sys, time
address, nowhere = sys.argv[1:]
def ask(kind, to):
    with socket.socket(socket.AF_INET, kind) as one:
        one.settimeout(2)
        one.connect((to, 80))
        one.send(b"?")
        return one.recv(9).decode()
until = time.monotonic() + 60
while True:  # until the rules have heard of it
    try:
        print(ask(socket.SOCK_STREAM, address))
        break
    except OSError:
        assert time.monotonic() < until
        time.sleep(0.1)
print(ask(socket.SOCK_DGRAM, address))
for name in ("web", "web.default", "web.default.svc.cluster.local"):
    print(socket.gethostbyname(name) == address)
try:
    ask(socket.SOCK_STREAM, nowhere)
except ConnectionRefusedError:
    print("refused")
"""
SELF_SERVER = """
import socket, sys, threading, time
server = socket.create_server(("", 7000))
def serve():
    while True:
        server.accept()[0].sendall(b"itself")
threading.Thread(target=serve, daemon=True).start()
"""
ASK_STREAM = """
until = time.monotonic() + 60
while True:  # until the rules have heard of it
    try:
        with socket.create_connection((sys.argv[1], 80), 2) as one:
            print(one.recv(9).decode())
        break
    except OSError:
        assert time.monotonic() < until
        time.sleep(0.1)
"""
SERVICE_ANSWERS = "tcp\nudp\nTrue\nTrue\nTrue\nrefused\n"


@pytest.fixture
async def cluster(start_cluster: Any, world: OutsideWorld) -> AsyncIterator[Any]:
    async with start_cluster("network", world.command("machine")) as running:
        yield running


async def output(cluster: Any, name: str, *command: str, **spec: object) -> str:
    """Run a pod to its end; return what it wrote."""
    await cluster.create_pod(name, *command, **spec)
    await cluster.wait_phase(name, "Succeeded", "Failed")
    return await cluster.logs(name)


def rules(world: OutsideWorld) -> str:
    """Return the tables of packet rules on the machine, as our own reader shows them."""
    script = "from gangline.cluster.node.network.egress.netfilter import read_chains; print(read_chains())"
    return world.run("machine", sys.executable, "-c", script)


def forwards(world: OutsideWorld, interface: str) -> bool:
    path = f"/proc/sys/net/ipv4/conf/{interface}/forwarding"
    return world.run("machine", "cat", path).strip() == "1"


def outside_of(paths: ClusterPaths) -> dict[str, object]:
    return json.loads((paths.state / "agent.json").read_text())["outside"]


async def test_pod_reaches_the_outside_by_address_and_by_name_as_the_machine(cluster):
    script = (
        "import urllib.request as request\n"
        f"for host in ('{OUTSIDE}', 'service.example', 'storage.corp'):\n"
        "    print(request.urlopen(f'http://{host}/', timeout=30).read().decode())\n"
    )

    said = await output(cluster, "asks", sys.executable, "-c", script)

    assert said.split() == [MACHINE] * 3
    assert outside_of(cluster.paths) == {
        "open": True,
        "note": "forwarding of up0 is switched on for them until the cluster ends",
    }


async def test_large_transfers_fit_the_smaller_packets_of_the_outside(cluster):
    said = await output(cluster, "moves", sys.executable, "-c", TRANSFER)

    assert said.split() == ["5000000", "5000000"]


async def test_names_that_the_machine_knows_and_long_answers_and_names_that_nobody_knows(cluster):
    names = ("service", "many.example", "asks.default.svc.cluster.local", "nobody.example")

    said = await output(cluster, "asks", sys.executable, "-c", LOOK_UP, *names)

    assert said.splitlines() == [
        f"service 1 {OUTSIDE}",  # by the machine's search domain
        "many.example 60 198.51.100.10",
        "asks.default.svc.cluster.local unknown fast",
        "nobody.example unknown fast",
    ]


async def test_pods_are_named_by_the_name_server_too(cluster):
    await cluster.create_pod("one", "sleep", "600", subdomain="team")
    one = (await cluster.wait_phase("one", "Running"))["status"]["podIP"]
    gateway = str(ipaddress.IPv4Network(json.loads(cluster.paths.facts.read_text())["subnet"])[1])
    ask = (
        "import socket, struct, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20)\n"
        "name = b''.join(bytes([len(w)]) + w.encode() for w in sys.argv[2].split('.')) + bytes(1)\n"
        "message = struct.pack('!6H', 7, 256, 1, 0, 0, 0) + name + struct.pack('!2H', 1, 1)\n"
        "s.sendto(message, (sys.argv[1], 53))\n"
        "print(socket.inet_ntoa(s.recv(512)[-4:]))"
    )
    said = [
        await output(cluster, f"asks-{n}", sys.executable, "-c", ask, gateway, name)
        for n, name in enumerate(("one.team", "ONE.team.default.svc.cluster.local"))
    ]

    assert [text.strip() for text in said] == [one, one]


async def test_services_lead_to_their_pods_by_address_and_by_name(cluster, world):
    await cluster.create_pod("serves", sys.executable, "-c", NAMED_SERVER)
    pod = await cluster.wait_phase("serves", "Running")
    ports = [{"name": name, "port": 80, "protocol": name.upper()} for name in ("tcp", "udp")]
    service = await cluster.create(SERVICES, "web", spec={"ports": ports})
    empty = await cluster.create(SERVICES, "empty", spec={"ports": ports[:1]})
    await cluster.create(
        ENDPOINT_SLICES,
        "web-1",
        metadata={"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        addressType="IPv4",
        endpoints=[{"addresses": [pod["status"]["podIP"]], "conditions": {"ready": True}}],
        ports=[{**port, "port": 7000} for port in ports],
    )
    address, nowhere = service["spec"]["clusterIP"], empty["spec"]["clusterIP"]
    ask = [sys.executable, "-c", ASK_SERVICE, address, nowhere]

    assert await output(cluster, "asks", *ask) == SERVICE_ANSWERS
    assert "-services" in rules(world)

    cluster.stop_agent(signal.SIGKILL)
    await cluster.start_agent()
    assert await output(cluster, "asks-again", *ask) == SERVICE_ANSWERS


async def test_a_service_leads_a_pod_to_itself(cluster):
    service = await cluster.create(SERVICES, "own", spec={"ports": [{"port": 80, "protocol": "TCP"}]})
    ask = SELF_SERVER + ASK_STREAM
    await cluster.create_pod("own", sys.executable, "-c", ask, service["spec"]["clusterIP"])
    pod = await cluster.wait_phase("own", "Running")
    await cluster.create(
        ENDPOINT_SLICES,
        "own-1",
        metadata={"name": "own-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "own"}},
        addressType="IPv4",
        endpoints=[{"addresses": [pod["status"]["podIP"]], "conditions": {"ready": True}}],
        ports=[{"port": 7000, "protocol": "TCP"}],
    )

    await cluster.wait_phase("own", "Succeeded", "Failed")
    assert await cluster.logs("own") == "itself\n"


async def test_nothing_outside_reaches_pods_or_their_bridge_unasked(cluster, world):
    await cluster.create_pod("serves", sys.executable, "-c", SERVER)
    pod = await cluster.wait_phase("serves", "Running")

    async def listens():
        return "02:67:" in await cluster.logs("serves")

    await cluster.wait_for(listens, "the server")
    subnet = json.loads(cluster.paths.facts.read_text())["subnet"]
    gateway = str(ipaddress.IPv4Network(subnet)[1])
    world.run("outside", *f"ip route add {subnet} via {MACHINE}".split())

    address = pod["status"]["podIP"]
    assert world.can_connect("machine", address, 7000)
    assert not world.can_connect("outside", address, 7000, 2.0)
    assert not world.can_connect("outside", gateway, 53, 2.0)
    assert "True" in await output(
        cluster,
        "peer",
        sys.executable,
        "-c",
        f"import socket; print(bool(socket.create_connection(('{address}', 7000), 20)))",
    )


async def test_forwarding_is_for_pods_alone(world, start_cluster):
    """Who takes this machine for a router is not served: it was none before."""
    world.join("inner", "in0", "203.0.113.1", "203.0.113.2")
    world.run("inner", *"ip route add default via 203.0.113.1".split())
    world.run("outside", *f"ip route add 203.0.113.0/24 via {MACHINE}".split())
    async with start_cluster("network", world.command("machine")) as cluster:
        script = (
            "import urllib.request as r; print(r.urlopen('http://203.0.113.2/', timeout=30).read().decode())"
        )

        assert (await output(cluster, "asks", sys.executable, "-c", script)).strip() == "203.0.113.1"
        assert not world.can_connect("outside", "203.0.113.2", 80, 2.0)


async def test_pod_on_the_machines_network_keeps_the_machines_resolver(cluster):
    script = f'cat /etc/resolv.conf; {sys.executable} -c "{LOOK_UP}" service.example'

    said = await output(cluster, "host", "sh", "-c", script, hostNetwork=True)

    assert "127.0.0.53" in said
    assert f"service.example 1 {OUTSIDE}" in said


async def test_what_a_killed_agent_left_is_taken_over_and_removed_at_the_end(world, paths, start_cluster):
    async with start_cluster("network", world.command("machine")) as cluster:
        await cluster.create_pod("long", "sleep", "600")
        await cluster.wait_phase("long", "Running")
        cluster.stop_agent(signal.SIGKILL)
        assert f"gangline-{paths.cluster_id}" in rules(world)
        await cluster.start_agent()
        assert forwards(world, "up0")
        assert MACHINE in await output(
            cluster,
            "asks",
            sys.executable,
            "-c",
            "import urllib.request as r; print(r.urlopen('http://service.example/').read())",
        )

    assert rules(world).strip() == "[]"
    assert not forwards(world, "up0")


async def test_down_after_a_kill_removes_what_was_left(world, paths, start_cluster):
    async with start_cluster("network", world.command("machine")) as cluster:
        cluster.stop_agent(signal.SIGKILL)
        script = (
            "import sys; from gangline.cluster.node.left_pods import remove_left_gate\n"
            "print(remove_left_gate(sys.argv[1]))"
        )

        said = world.run("machine", sys.executable, "-c", script, paths.cluster_id)

        assert said.strip() == "True"
        assert rules(world).strip() == "[]"
        assert not forwards(world, "up0")


async def test_forwarding_stays_on_while_another_cluster_needs_it(world, paths, start_cluster):
    async with start_cluster("network", world.command("machine")) as first:
        script = (
            "import asyncio, ipaddress, sys\n"
            "from gangline.cluster.node.network.egress.gate import EgressGate, remove_gate\n"
            "if sys.argv[1] == 'open':\n"
            "    net = ipaddress.ip_network('10.250.0.0/20')\n"
            "    gate = EgressGate(cluster_id='0123abcd', bridge='gl-0123abcd', subnet=net)\n"
            "    asyncio.run(gate.open())\n"
            "    print(gate.refusal or 'open')\n"
            "else:\n"
            "    print(remove_gate('0123abcd'))\n"
        )
        assert world.run("machine", sys.executable, "-c", script, "open").strip() == "open"
        first.stop_agent()
        assert paths.cluster_id not in rules(world)
        assert forwards(world, "up0")

        assert world.run("machine", sys.executable, "-c", script, "close").strip() == "True"

        assert not forwards(world, "up0")


async def test_machine_whose_switches_cannot_be_written_goes_on_without_a_way_out(
    world, paths, start_cluster
):
    world.run("machine", "mount", "--bind", "/proc/sys", "/proc/sys")
    world.run("machine", "mount", "-o", "remount,bind,ro", "/proc/sys")
    async with start_cluster("network", world.command("machine")) as cluster:
        said = await output(cluster, "asks", sys.executable, "-c", LOOK_UP, "service.example", "asks")

        outside = outside_of(paths)
        assert outside["open"] is False
        assert "forwarding of " in str(outside["note"])
        assert said.splitlines()[0] == "service.example unknown fast"
        assert said.splitlines()[1].startswith("asks 1 10.")


async def test_pod_that_starts_again_is_reached_at_once_by_a_peer_that_knew_it(cluster, tmp_path):
    """Same address, same hardware address: what the peer knows of its neighbour stays right."""
    await cluster.create_pod("server", sys.executable, "-c", SERVER, restartPolicy="Always")
    pod = await cluster.wait_phase("server", "Running")
    address = pod["status"]["podIP"]
    expected = "02:67:" + ":".join(f"{octet:02x}" for octet in ipaddress.IPv4Address(address).packed)

    async def says():
        return (await cluster.logs("server")).strip()

    assert await cluster.wait_for(says, "the server") == expected
    peer = (
        "import os, socket, time\n"
        f"place = ('{address}', 7000)\n"
        "socket.create_connection(place, 20).close()\n"
        "print('knows it', flush=True)\n"
        "while not os.path.exists('/told/now'): time.sleep(0.01)\n"
        "began = time.monotonic()\n"
        "socket.create_connection(place, 60).close()\n"
        "print(time.monotonic() - began)\n"
    )
    told = {"name": "told", "mountPath": "/told"}
    await cluster.create_pod(
        "peer",
        sys.executable,
        "-c",
        peer,
        container={"volumeMounts": [told]},
        volumes=[{"name": "told", "hostPath": {"path": str(tmp_path)}}],
    )

    await cluster.wait_phase("peer", "Running")

    async def knows_it():
        return "knows it" in await cluster.logs("peer")

    await cluster.wait_for(knows_it, "the peer")
    before = json.loads((cluster.paths.pods / pod["metadata"]["uid"] / "state.json").read_text())["pid"]
    os.kill(before, signal.SIGKILL)  # the shim: the pod is made anew

    async def serves_again():
        pod = await cluster.pod("server")
        status = pod["status"]["containerStatuses"][0]
        return status["restartCount"] == 1 and status["ready"] and await says()

    await cluster.wait_for(serves_again, "the server again")
    (tmp_path / "now").touch()

    await cluster.wait_phase("peer", "Succeeded")
    assert (await cluster.pod("server"))["status"]["podIP"] == address
    assert float((await cluster.logs("peer")).split()[-1]) < AT_ONCE_S
