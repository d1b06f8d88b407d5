"""Pods of one gang reach each other over links of their own, and as before once such a link is gone."""

from __future__ import annotations

import signal
import sys

import pytest

from gangline.cluster.node.isolation import refusal_of
from gangline.cluster.node.network.direct_links import LINKS_MAX

JOB = {"labels": {"training.kubeflow.org/job-name": "train"}}
SERVE = """
import os, socket
with socket.create_server(("0.0.0.0", 22123)) as server:
    print("serves", flush=True)
    while True:
        peer, (address, _) = server.accept()
        links = sum(name.startswith("to-") for name in os.listdir("/sys/class/net"))
        peer.sendall(f"{address} {links}".encode())
        peer.close()
"""
LOOK = """
import socket, sys, time

def way(to):
    for line in open("/proc/net/route").read().splitlines()[1:]:
        interface, destination, _, _, _, _, _, mask = line.split()[:8]
        if mask == "FFFFFFFF" and int(destination, 16) == int.from_bytes(socket.inet_aton(to), "little"):
            return interface
    return "eth0"

def asked(to):
    with socket.create_connection((to, 22123), 30) as peer:
        return peer.recv(99).decode().split()[0]

until = time.monotonic() + 60
while any(way(to) == "eth0" for to in sys.argv[1:]) and time.monotonic() < until:
    time.sleep(0.05)
for to in sys.argv[1:]:
    print(way(to), asked(to), flush=True)
"""
ROUTES = """
import socket, sys, time
to = int.from_bytes(socket.inet_aton(sys.argv[1]), "little")
until, said = time.monotonic() + 60, []
while len(said) < 2 and time.monotonic() < until:
    lines = [line.split() for line in open("/proc/net/route").read().splitlines()[1:]]
    said = [(line[0], line[6]) for line in lines if line[7] == "FFFFFFFF" and int(line[1], 16) == to]
    time.sleep(0.05)
print(*said, sep="\\n")
"""
ASK = """
import socket, sys, time
until, said = time.monotonic() + 60, ""
while not said.endswith(" " + sys.argv[2]) and time.monotonic() < until:
    with socket.create_connection((sys.argv[1], 22123), 30) as peer:
        said = peer.recv(99).decode()
    time.sleep(0.05)
print(said)
"""


@pytest.fixture
async def cluster(start_cluster):
    if refusal := refusal_of("network"):
        pytest.skip(f"network isolation: {refusal}")
    async with start_cluster("network") as running:
        yield running


async def serving(cluster, name, metadata):
    await cluster.create_pod(name, sys.executable, "-c", SERVE, metadata=metadata)
    pod = await cluster.wait_phase(name, "Running")
    return pod["status"]["podIP"]


def link_to(address):
    return "to-" + "-".join(address.split(".")[1:])


async def looks(cluster, name, *addresses, metadata=JOB):
    await cluster.create_pod(name, sys.executable, "-c", LOOK, *addresses, metadata=metadata)
    pod = await cluster.wait_phase(name, "Succeeded")
    return pod["status"]["podIP"], (await cluster.logs(name)).split("\n")[:-1]


async def test_pods_of_a_job_have_links_of_their_own_and_keep_their_addresses(cluster):
    first, second = [await serving(cluster, name, JOB) for name in ("train-a", "train-b")]

    own, ways = await looks(cluster, "train-c", first, second)

    assert ways == [f"{link_to(first)} {own}", f"{link_to(second)} {own}"]


async def test_an_interface_with_an_address_has_a_route_to_each_linked_pod_too(cluster):
    # UCX, below MPICH, sends by such a one alone, and only where no other has a longer route.
    server = await serving(cluster, "train-a", JOB)

    await cluster.create_pod("train-b", sys.executable, "-c", ROUTES, server, metadata=JOB)

    await cluster.wait_phase("train-b", "Succeeded")
    routes = (await cluster.logs("train-b")).split("\n")[:-1]
    assert routes == [f"('{link_to(server)}', '0')", "('eth0', '1')"]


async def test_an_agent_that_came_later_links_new_pods_with_those_it_found(cluster):
    first = await serving(cluster, "train-a", JOB)
    cluster.stop_agent(signal.SIGKILL)
    await cluster.start_agent()

    own, ways = await looks(cluster, "train-b", first)

    assert ways == [f"{link_to(first)} {own}"]


async def test_a_link_goes_with_either_pod_and_others_come_by_the_bridge(cluster):
    server = await serving(cluster, "train-a", JOB)
    await looks(cluster, "train-b", server)
    await cluster.delete("train-b")
    ask = (sys.executable, "-c", ASK, server, "0")

    await cluster.create_pod("other", *ask)

    pod = await cluster.wait_phase("other", "Succeeded")
    assert (await cluster.logs("other")).split() == [pod["status"]["podIP"], "0"]


async def test_a_pod_has_links_to_a_bounded_number_of_others(cluster):
    addresses = [await serving(cluster, f"train-{index}", JOB) for index in range(LINKS_MAX + 2)]

    _, ways = await looks(cluster, "train-last", *addresses[-1:])
    await cluster.create_pod("counts", sys.executable, "-c", ASK, addresses[3], str(LINKS_MAX))

    assert ways[0].startswith(link_to(addresses[-1]))
    await cluster.wait_phase("counts", "Succeeded")
    assert (await cluster.logs("counts")).split()[1] == str(LINKS_MAX)
