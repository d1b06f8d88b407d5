"""The nodes that a cluster has, and what one whose server answers still waits for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gangline.api.resources import MPIJOBS, NODES, SERVICE_ACCOUNTS
from gangline.cluster.daemon.cluster_facts import OWN, ClusterFacts
from gangline.cluster.daemon.simulation import Simulation
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, NotFound

AGENT_LABEL = "gangline.dev/agent"
CONTROLLERS_STARTED = "/readyz/poststarthook/start-controllers"
"""Answered with success once what works in the server has begun; named as Kubernetes names such paths."""


def node_object(name: str) -> dict[str, Any]:
    """Return the Node that the node agent then fills in."""
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "metadata": {
            "name": name,
            "labels": {AGENT_LABEL: "local", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "spec": {},
    }


async def add_absent_nodes(client: Client, facts: ClusterFacts) -> None:
    """Create the nodes of a cluster that are not there: new ones, and those that somebody has deleted."""
    there = {node["metadata"]["name"] for node in (await client.list(NODES)).items}
    for name in facts.node_names:
        if name not in there:
            with suppress(AlreadyExists):
                await client.create(NODES, node_object(name))


async def missing(client: Client, facts: ClusterFacts) -> str:
    """Return what a cluster that answers waits for, nothing when it is ready."""
    nodes = (await client.list(NODES, label_selector=f"{AGENT_LABEL}=local")).items
    if not _ready_names(nodes, Simulation.of(facts)) >= set(facts.node_names):
        return "its nodes"
    try:
        if facts.has_operator:
            await client.send("GET", MPIJOBS.root)
    except NotFound:
        return "the job kinds"
    if facts.control_plane == OWN:
        return "" if await client.probe(CONTROLLERS_STARTED) else "its controllers"
    try:  # without which the API server refuses every pod
        await client.get(SERVICE_ACCOUNTS, "default", "default")
    except NotFound:
        return "kube-controller-manager"
    return ""


def _ready_names(nodes: list[dict[str, Any]], simulation: Simulation) -> set[str]:
    """Return the nodes that are ready and show the GPUs of this start, not of the one before."""
    names = set()
    for node in nodes:
        conditions = node.get("status", {}).get("conditions") or []
        is_ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
        if is_ready and simulation.is_shown(node):
            names.add(node["metadata"]["name"])
    return names
