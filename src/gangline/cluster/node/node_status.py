"""Keeps the nodes of this agent Ready: their status, once and on change, and their leases every 10 seconds.

A node is ours when it carries the label ``gangline.dev/agent: local``. Every node shows the whole
machine, but real GPUs: those the first node shows alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from gangline import clock
from gangline.api.core import Node
from gangline.api.resources import LEASES, NODES
from gangline.devices import inventory
from gangline.devices.inventory import DeviceInventory
from gangline.kube.errors import AlreadyExists, ApiError, NotFound
from gangline.kube.verbs import ObjectClient

AGENT_LABEL = "gangline.dev/agent"
ISOLATION_ANNOTATION = "gangline.dev/isolation"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_RENEW_S = 10.0
LEASE_LENGTH_S = 40


def is_ours(node: Node) -> bool:
    """Return whether this machine's agent runs the node."""
    return node.metadata.labels.get(AGENT_LABEL) == "local"


def node_status(
    node: Node,
    *,
    address: str,
    capacity: dict[str, str],
    allocatable: dict[str, str],
    info: dict[str, str],
    now: str,
    endpoints: dict[str, Any],
) -> dict[str, Any]:
    """Return the status of a node that works. Pure."""
    before = {condition.type: condition for condition in node.status.conditions}
    rows = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "memory is sufficient"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "disk is sufficient"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "process ids are sufficient"),
        ("Ready", "True", "KubeletReady", "the node agent works"),
    ]
    conditions = []
    for type_, status, reason, message in rows:
        known = before.get(type_)
        since = known.last_transition_time if known is not None and known.status == status else None
        conditions.append(
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": since or now,
            }
        )
    return {
        "capacity": capacity,
        "allocatable": allocatable,
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": node.metadata.name},
        ],
        "conditions": conditions,
        "nodeInfo": info,
        **({"daemonEndpoints": endpoints} if endpoints else {}),
    }


def node_note(node: Node, isolation: str, gpus: DeviceInventory) -> dict[str, Any]:
    """Return the labels and annotations that the node lacks; None in them takes one away. Pure."""
    labels = inventory.node_labels(gpus)
    notes = {ISOLATION_ANNOTATION: isolation, inventory.TOPOLOGY_ANNOTATION: inventory.topology_note(gpus)}
    wanted = {"labels": (labels, node.metadata.labels), "annotations": (notes, node.metadata.annotations)}
    changes = {
        kind: {name: value for name, value in new.items() if value != old.get(name)}
        for kind, (new, old) in wanted.items()
    }
    return {kind: change for kind, change in changes.items() if change}


def _with_removals(fresh: dict[str, str], old: Mapping[str, Any], ours: set[str]) -> dict[str, Any]:
    """Return amounts for a patch, with None for a device of ours that the node has no more."""
    return {name: None for name in old if name in ours} | fresh


def no_devices(node: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return what device plugins add where there are none: nothing to capacity, nothing that can be had."""
    return {}, {}


class NodeKeeper:
    """Writes status and leases of nodes."""

    def __init__(
        self,
        client: ObjectClient,
        *,
        address_of: Callable[[str], str],
        isolation: str,
        capacity: dict[str, str],
        gpus: Callable[[Node], DeviceInventory],
        info: dict[str, str],
        log: Any,
        kubelet_port: int = 0,
        devices: Callable[[str], tuple[dict[str, str], dict[str, str]]] = no_devices,
    ) -> None:
        self._devices = devices
        self._advertised = {inventory.RESOURCE}
        self._endpoints = {"kubeletEndpoint": {"Port": kubelet_port}} if kubelet_port else {}
        self._client = client
        self._address_of = address_of
        self._isolation = isolation
        self._capacity = capacity
        self._gpus = gpus
        self._info = info
        self._log = log
        self._nodes: dict[str, Node] = {}
        self._holder = f"gangline-{clock.now():%Y%m%d%H%M%S}"

    async def take(self, node: Node) -> None:
        """Make a node Ready; call it for every change of the node, it writes only when needed."""
        self._nodes[node.metadata.name] = node
        name = node.metadata.name
        gpus = self._gpus(node)
        there, usable = self._devices(name)
        self._advertised |= there.keys()
        capacity = self._capacity | inventory.capacity(gpus) | there
        allocatable = self._capacity | inventory.allocatable(gpus) | usable
        note = node_note(node, self._isolation, gpus)
        addresses = [a.get("address") for a in node.status.addresses]
        amounts = (node.status.capacity, node.status.allocatable)
        address = self._address_of(name)
        is_found = address in addresses and node.status.daemon_endpoints == self._endpoints
        if node.is_ready and not note and is_found and amounts == (capacity, allocatable):
            return
        status = node_status(
            node,
            address=address,
            capacity=_with_removals(capacity, node.status.capacity, self._advertised),
            allocatable=_with_removals(allocatable, node.status.allocatable, self._advertised),
            info=self._info,
            now=clock.format_time(clock.now()),
            endpoints=self._endpoints,
        )
        try:
            if note:  # before the node is Ready with them: whoever sees its GPUs shall see what they are
                await self._client.patch(NODES, name, {"metadata": note})
            await self._client.patch(NODES, name, {"status": status}, kind="strategic", subresource="status")
        except NotFound:
            self.drop(name)

    def drop(self, name: str) -> None:
        """Forget a node that is gone."""
        self._nodes.pop(name, None)

    async def keep_leases(self) -> None:
        """Renew the lease of every node; endless."""
        while True:
            for name in list(self._nodes):
                try:
                    await self._renew(name)
                except ApiError as error:
                    self._log.warning("lease not renewed", node=name, error=str(error))
            await asyncio.sleep(LEASE_RENEW_S)

    async def _renew(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_LENGTH_S,
            "renewTime": clock.format_micro_time(clock.now()),
        }
        try:
            await self._client.patch(LEASES, name, {"spec": spec}, LEASE_NAMESPACE)
        except NotFound:
            lease = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
                "spec": spec,
            }
            try:
                await self._client.create(LEASES, lease)
            except AlreadyExists:
                return
