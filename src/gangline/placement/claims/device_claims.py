"""What pods ask for by claims of devices, and what claims hold: GPUs, chosen and counted as any other.

Claims of our driver become GPUs of the pod, its nodes those that publish theirs as ResourceSlices. What is
not served is refused with a reason that names it. An allocated claim takes its pod to its node.
Source: Kubernetes, "Dynamic Resource Allocation", ``resource.k8s.io/v1``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from gangline.errors import UserError
from gangline.placement.decisions import Binding
from gangline.placement.snapshot import NodeView, PodView
from gangline.topology import NodeGpus, read_annotation
from gangline.units import parse_quantity
from gangline.workloads.cel import NotServed, NoValue, Version, compile_rule
from gangline.workloads.device_class import DRIVER
from gangline.workloads.requests import GPU

Obj = dict[str, Any]
EXACT = "ExactCount"
KEEPING_AWAY = ("NoSchedule", "NoExecute")
"""Effects of a device's taints that keep claims away."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that a node publishes: names and devices as selectors see them, by UUID, and their links.

    Those with a taint are for nobody: claims with tolerations are not served.
    """

    node: str
    names: dict[str, str] = {}
    devices: dict[str, Obj] = {}
    gpus: NodeGpus | None = None
    tainted: frozenset[str] = frozenset()


class Demand(msgspec.Struct, frozen=True):
    """What claims ask for that are not allocated: (claim, request, count), and the selectors of all."""

    counts: tuple[tuple[str, str, int], ...]
    selectors: tuple[str, ...]


class ClaimRefused(Exception):
    """A pod waits for a claim, or asks for what is not served; the text says what for."""


def read_slice(obj: Obj) -> Slice | None:
    """Return a ResourceSlice of our driver, None for another driver's."""
    spec = obj["spec"]
    if spec.get("driver") != DRIVER:
        return None
    devices, names, tainted = {}, {}, set()
    for device in spec.get("devices") or ():
        seen = _seen(device)
        uuid = seen["attributes"][DRIVER].get("uuid", device["name"])
        devices[uuid], names[uuid] = seen, device["name"]
        if any(taint.get("effect") in KEEPING_AWAY for taint in device.get("taints") or ()):
            tainted.add(uuid)
    return Slice(
        node=spec.get("nodeName") or "",
        names=names,
        devices=devices,
        gpus=_gpus(devices),
        tainted=frozenset(tainted),
    )


def _seen(device: Obj) -> Obj:
    """Return a device as selectors see it: what has no domain in its name is the driver's."""
    found: Obj = {"driver": DRIVER, "attributes": {DRIVER: {}}, "capacity": {DRIVER: {}}}
    for key, value in (device.get("attributes") or {}).items():
        domain, _, name = key.rpartition("/")
        ((kind, said),) = value.items()
        found["attributes"].setdefault(domain or DRIVER, {})[name] = (
            Version.parse(said) if kind == "version" else said
        )
    for key, value in (device.get("capacity") or {}).items():
        domain, _, name = key.rpartition("/")
        found["capacity"].setdefault(domain or DRIVER, {})[name] = parse_quantity(value["value"])
    return found


def _gpus(devices: dict[str, Obj]) -> NodeGpus | None:
    """Return the GPUs with their links; where one says nothing of them, the slowest are assumed."""
    said = {uuid: device["attributes"][DRIVER] for uuid, device in devices.items()}
    count = len(said)
    links = [str(one.get("links") or "").split() for one in said.values()]
    if any(len(row) != count for row in links):
        links = [["X" if one == other else "SYS" for other in range(count)] for one in range(count)]
    first: Obj = next(iter(said.values()), {})
    note = {
        "model": first.get("productName", ""),
        "source": first.get("source", "file"),
        "gpus": [
            {
                "uuid": uuid,
                "index": one.get("index", place),
                "numa": one.get("numa", 0),
                "healthy": one.get("healthy", True),
            }
            for place, (uuid, one) in enumerate(said.items())
        ],
        "links": links,
    }
    try:
        return read_annotation(json.dumps(note)) if count else None
    except UserError:
        return None


class DeviceClaims:
    """All slices, classes and claims of a cluster.

    Attributes:
        is_known: all has been read; until then a pod with claims waits.
        slices: of our driver, by node.
        classes: device classes in wire form, by name.
        claims: in wire form, by ``NAMESPACE/NAME``.
    """

    def __init__(self) -> None:
        self.is_known = False
        self.slices: dict[str, Slice] = {}
        self.classes: dict[str, Obj] = {}
        self.claims: dict[str, Obj] = {}
        self._visible: dict[tuple[str, ...], frozenset[str] | None] = {}

    def take(self, slices: Iterable[Obj], classes: Iterable[Obj], claims: Iterable[Obj]) -> None:
        """Take all objects of a cluster, in wire form; from now on all is known."""
        for obj in slices:
            self.take_slice(obj)
        self.classes = {one["metadata"]["name"]: one for one in classes}
        self.claims = {f"{one['metadata']['namespace']}/{one['metadata']['name']}": one for one in claims}
        self.is_known = True

    def take_slice(self, obj: Obj, *, is_gone: bool = False) -> str:
        """Take a slice, or that it is gone; return the node whose GPUs may have changed, or nothing."""
        self._visible.clear()
        found = read_slice(obj)
        if found is None or not found.node:
            return ""
        if is_gone:
            self.slices.pop(found.node, None)
        else:
            self.slices[found.node] = found
        return found.node

    def on_node(self, node: NodeView) -> NodeView:
        """Return a node with the GPUs that it publishes for claims; they go to claims alone."""
        found = self.slices.get(node.name)
        if found is None or found.gpus is None:
            return node
        allocatable = {**node.allocatable, GPU: found.gpus.healthy.bit_count()}
        # Which GPUs a claim gets is decided here, so by the wires.
        return msgspec.structs.replace(
            node, gpus=found.gpus, allocatable=allocatable, by_wires=True, by_claim=True
        )

    def applied(self, pod: PodView) -> PodView:
        """Return a pod with what its claims ask for or, once it is bound, hold."""
        if not pod.device_claims or pod.refusal:
            return pod
        if pod.node_name:
            return self._holding(pod)
        try:
            return self._asking(pod)
        except ClaimRefused as refused:
            return msgspec.structs.replace(pod, refusal=str(refused), shape=pod.shape + str(refused).encode())

    def _holding(self, pod: PodView) -> PodView:
        """A claim of several pods is counted at the first of them."""
        known = self.slices.get(pod.node_name)
        uuids = {name: uuid for uuid, name in known.names.items()} if known else {}
        found: list[str] = []
        for _, name in pod.device_claims:
            status = (self.claims.get(f"{pod.namespace}/{name}") or {}).get("status") or {}
            reserved = status.get("reservedFor") or [{}]
            if reserved[0].get("uid") == pod.uid:
                found += [uuids[device] for pool, device in held_devices(status) if pool == pod.node_name]
        if not found:
            return pod
        request = {**pod.request, GPU: pod.request.get(GPU, 0) + len(found)}
        return msgspec.structs.replace(
            pod, request=request, gpu_uuids=tuple(dict.fromkeys([*pod.gpu_uuids, *found]))
        )

    def _asking(self, pod: PodView) -> PodView:
        if not self.is_known:
            raise ClaimRefused(
                "asks for devices by claims, and this scheduler cannot read resource.k8s.io/v1 here"
            )
        if pod.request.get(GPU):
            raise ClaimRefused(f"asks for {GPU} and by claims: one pod uses one of the two")
        terms, counts, selectors = [], [], set()
        for name, obj_name in pod.device_claims:
            claim = self.claims.get(f"{pod.namespace}/{obj_name}") if obj_name else None
            if claim is None:
                where = (
                    f"{pod.namespace}/{obj_name}, which does not exist"
                    if obj_name
                    else f"`{name}`, being made"
                )
                raise ClaimRefused(f"waits for resource claim {where}")
            status = claim.get("status") or {}
            if allocation := status.get("allocation"):
                if chosen := (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms"):
                    terms.append(tuple(chosen))
                continue
            for request in (claim["spec"].get("devices") or {}).get("requests") or ():
                count, asked = self._request(obj_name, claim, request)
                counts.append((obj_name, str(request["name"]), count))
                selectors.add(asked)
        if len(selectors) > 1:
            raise ClaimRefused("requests of one pod with different selectors are not served here")
        (asked,) = selectors or {()}
        return self._with(pod, tuple(counts), asked, tuple(terms))

    def _with(
        self,
        pod: PodView,
        counts: tuple[tuple[str, str, int], ...],
        selectors: tuple[str, ...],
        terms: tuple[tuple[Obj, ...], ...],
    ) -> PodView:
        shares, first = [], 0
        for claim, request, count in counts:
            shares.append((claim, request, first, first + count))
            first += count
        names = dict(pod.device_claims)
        by_container = [
            (container, start, end)
            for container, used, part in pod.claim_users
            for claim, request, start, end in shares
            if names.get(used) == claim and part in ("", request)
        ]
        asked = ([count for _, _, count in counts], selectors, terms)
        return msgspec.structs.replace(
            pod,
            request={**pod.request, GPU: first} if first else pod.request,
            claim_shares=tuple(shares),
            gpu_shares=tuple(by_container),
            visible_gpus=self._matching(selectors) if counts else None,
            volume_terms=(*pod.volume_terms, *terms),
            shape=pod.shape + msgspec.json.encode(asked),
        )

    def _request(self, name: str, claim: Obj, request: Obj) -> tuple[int, tuple[str, ...]]:
        """Return how many devices a request asks for, and by which selectors."""
        what = f"request {request.get('name')} of claim {name}"
        if claim["spec"]["devices"].get("constraints"):
            raise ClaimRefused(f"claim {name} has constraints, which are not served here")
        exactly = request.get("exactly")
        if exactly is None:
            raise ClaimRefused(f"{what}: firstAvailable is not served here")
        if exactly.get("adminAccess") or exactly.get("capacity"):
            raise ClaimRefused(f"{what}: adminAccess and capacity are not served here")
        mode = exactly.get("allocationMode") or EXACT
        if mode != EXACT:
            raise ClaimRefused(f"{what}: allocationMode {mode} is not served here")
        known = self.classes.get(exactly.get("deviceClassName", ""))
        if known is None:
            raise ClaimRefused(f"{what}: device class {exactly.get('deviceClassName')} does not exist")
        if exactly.get("tolerations"):
            raise ClaimRefused(f"{what}: tolerations of device taints are not served here")
        said = [*((known["spec"]).get("selectors") or ()), *(exactly.get("selectors") or ())]
        expressions = tuple(sorted(one["cel"]["expression"] for one in said if one.get("cel")))
        try:
            if not self._matching(expressions, is_any=True):
                raise ClaimRefused(
                    f"{what}: no device of driver {DRIVER} matches, and other drivers' are not served"
                )
        except NotServed as error:
            raise ClaimRefused(f"{what}: this part of its selectors is not served here: {error}") from None
        except NoValue as error:
            raise ClaimRefused(f"{what}: its selectors have no value for a device: {error}") from None
        return int(exactly.get("count") or 1), expressions

    def _matching(self, selectors: tuple[str, ...], *, is_any: bool = False) -> Any:
        """Return the GPUs that match, None for all healthy ones; or whether there is any.

        Raises:
            NotServed: a selector is beyond the served part of CEL.
            NoValue: a selector has no value for a device.
        """
        if selectors not in self._visible:
            tests = [compile_rule(one, ("device",)) for one in selectors]
            found, is_whole = set(), True
            for one in self.slices.values():
                for place, (uuid, device) in enumerate(one.devices.items()):
                    if uuid not in one.tainted and all(test({"device": device}) is True for test in tests):
                        found.add(uuid)
                    elif one.gpus is None or one.gpus.healthy >> place & 1:
                        is_whole = False
            self._visible[selectors] = None if is_whole and found else frozenset(found)
        known = self._visible[selectors]
        return (known is None or bool(known)) if is_any else known

    def allocated(self, binding: Binding, name: str, taken: Collection[str]) -> Obj:
        """Return the status of a claim whose devices a decision has chosen.

        Args:
            binding: the decision.
            name: of the claim.
            taken: devices of the binding's node that claims hold.

        Raises:
            ClaimRefused: a device is gone, another claim has it by now, or it is not what the claim asks for.
        """
        namespace, pod = binding.pod.split("/", 1)
        claim = self.claims.get(f"{namespace}/{name}")
        if claim is None:
            raise ClaimRefused(f"claim {namespace}/{name} is gone")
        status = dict(claim.get("status") or {})
        consumer = {"resource": "pods", "name": pod, "uid": binding.uid}
        reserved = [one for one in status.get("reservedFor") or () if one["uid"] != binding.uid]
        status["reservedFor"] = [*reserved, consumer]
        if status.get("allocation"):
            if any(owner == name for owner, _, _ in binding.claims):
                raise ClaimRefused(f"claim {namespace}/{name} is given to another pod at the same time")
            return status
        names = self.slices[binding.node].names if binding.node in self.slices else {}
        results = []
        for owner, request, uuids in binding.claims:
            for uuid in uuids if owner == name else ():
                if not self._may_have(claim, request, uuid):
                    rule = "its selectors; pods of one gang with different selectors are not served here"
                    what = f"device {uuid} is not for request {request} of claim {name} by "
                    raise ClaimRefused(what + rule)
                if uuid not in names or names[uuid] in taken:
                    raise ClaimRefused(f"device {uuid} of node {binding.node} is gone or has been given away")
                found = {"request": request, "driver": DRIVER, "pool": binding.node, "device": names[uuid]}
                results.append(found)
        where = {"key": "metadata.name", "operator": "In", "values": [binding.node]}
        devices: Obj = {"results": results}
        if config := (claim["spec"].get("devices") or {}).get("config"):
            devices["config"] = [{"source": "FromClaim", **one} for one in config]
        terms = [{"matchFields": [where]}]
        status["allocation"] = {"devices": devices, "nodeSelector": {"nodeSelectorTerms": terms}}
        return status

    def _may_have(self, claim: Obj, name: str, uuid: str) -> bool:
        """Return whether a device is one that a request asks for."""
        requests = (claim["spec"].get("devices") or {}).get("requests") or ()
        asked = next((one for one in requests if one["name"] == name), None)
        if asked is None:
            return False
        matching = self._matching(self._request(claim["metadata"]["name"], claim, asked)[1])
        return matching is None or uuid in matching

    def taken(self) -> dict[str, set[str]]:
        """Return the devices that claims hold, by node and name. Cost: 2 µs for each claim there is."""
        found: dict[str, set[str]] = {}
        for claim in self.claims.values():
            for pool, device in held_devices(claim.get("status") or {}):
                found.setdefault(pool, set()).add(device)
        return found


def held_devices(status: Obj) -> list[tuple[str, str]]:
    """Return (pool, device) of the devices of our driver that a claim's status says it holds."""
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(one["pool"], one["device"]) for one in results if one.get("driver") == DRIVER]
