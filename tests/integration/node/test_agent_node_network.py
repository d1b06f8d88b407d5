"""Nodes after the first: an address each, and one network for all of a node's pods with ``hostNetwork``."""

import ipaddress
import json
import signal
import subprocess
import sys

import pytest

from gangline.api.resources import NODES
from gangline.cluster.node.isolation import refusal_of

SERVE = """
import socket, sys
with socket.create_server(("0.0.0.0", 22122)) as server:
    print("serves", flush=True)
    while True:
        peer, _ = server.accept()
        peer.sendall(sys.argv[1].encode())
        peer.close()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 22122), 30) as peer:
    print(peer.recv(99).decode())
"""
INTERFACES = "cut -d: -f1 -s /proc/net/dev"


@pytest.fixture
async def cluster(start_cluster):
    if refusal := refusal_of("network"):
        pytest.skip(f"network isolation: {refusal}")
    async with start_cluster("network") as running:
        node = {"metadata": {"name": "node-1", "labels": {"gangline.dev/agent": "local"}}}
        await running.client.create(NODES, {"apiVersion": "v1", "kind": "Node"} | node)
        yield running


async def address_of(cluster, name):
    async def found():
        node = await cluster.client.get(NODES, name)
        rows = (node.get("status") or {}).get("addresses") or []
        return next((row["address"] for row in rows if row["type"] == "InternalIP"), None)

    return await cluster.wait_for(found, f"an address of {name}")


async def output(cluster, name, *command, node):
    await cluster.create_pod(name, *command, nodeName=node, hostNetwork=True)
    await cluster.wait_phase(name, "Succeeded")
    return (await cluster.logs(name)).strip()


async def test_two_nodes_pods_on_the_host_network_listen_on_one_port(cluster):
    first, second = [await address_of(cluster, name) for name in ("node-0", "node-1")]
    subnet = ipaddress.IPv4Network(json.loads(cluster.paths.facts.read_text())["subnet"])
    assert first == str(subnet[1])
    assert second == str(subnet[-2])

    for node, address in (("node-0", first), ("node-1", second)):
        command = (sys.executable, "-c", SERVE, f"I am {node}")
        await cluster.create_pod(f"at-{node}", *command, nodeName=node, hostNetwork=True)
        pod = await cluster.wait_phase(f"at-{node}", "Running")
        assert (pod["status"]["hostIP"], pod["status"]["podIP"]) == (address, address)

    for index, (node, asked) in enumerate(
        (node, asked) for node in ("node-0", "node-1") for asked in ((first, "node-0"), (second, "node-1"))
    ):
        said = await output(cluster, f"asks-{index}", sys.executable, "-c", ASK, asked[0], node=node)
        assert said == f"I am {asked[1]}"


async def test_pods_of_a_node_share_its_network_also_with_an_agent_that_came_later(cluster, paths):
    await cluster.create_pod(
        "serves", sys.executable, "-c", SERVE, "same", nodeName="node-1", hostNetwork=True
    )
    await cluster.wait_phase("serves", "Running")
    cluster.stop_agent(signal.SIGKILL)
    await cluster.start_agent()

    assert await output(cluster, "asks", sys.executable, "-c", ASK, "127.0.0.1", node="node-1") == "same"
    seen = (await output(cluster, "looks", "sh", "-c", INTERFACES, node="node-1")).split()
    assert seen == ["lo", f"gl-{paths.cluster_id}"]


async def test_nothing_of_a_nodes_network_is_left_by_a_killed_agent(cluster, paths):
    assert await output(cluster, "short", "echo", "done", node="node-1") == "done"
    prefix = f"gl{paths.cluster_id[:5]}"
    links = ("ip", "-o", "link")
    assert prefix in subprocess.check_output(links, text=True)

    cluster.stop_agent(signal.SIGKILL)

    await cluster.wait_for(lambda: prefix not in subprocess.check_output(links, text=True), "links to go")
