"""What pods ask for by claims of devices, and what claims hold (``resource.k8s.io``).

Claims of our own driver become GPUs of the pod, chosen by their links and counted as any other. Devices of
other drivers are demands of the pod, which placement serves node by node. What is not served is refused with
a reason that names it. An allocated claim takes its pod to its node.
Source: Kubernetes, "Dynamic Resource Allocation", ``resource.k8s.io/v1``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from gangline.placement.claims.allocate import GivenDevice
from gangline.placement.claims.demands import Choice, ClaimDemand, ClaimRefused, read_demand
from gangline.placement.claims.devices import DeviceId, DevicePools
from gangline.placement.claims.gpu_slices import GpuSlice
from gangline.placement.claims.results import allocation_of, held_devices
from gangline.placement.decisions import Binding
from gangline.placement.snapshot import NodeView, PodView
from gangline.workloads.cel import NoValue
from gangline.workloads.device_class import DRIVER
from gangline.workloads.requests import GPU

Obj = dict[str, Any]

USERS_MAX = 256
"""Pods that may use one claim. Source: ``ResourceClaimReservedForMaxSize`` of ``resource.k8s.io/v1``."""

_encoder = msgspec.json.Encoder(enc_hook=list, order="deterministic")


class DeviceClaims:
    """All slices, classes and claims of a cluster.

    Attributes:
        is_known: all has been read; until then a pod with claims waits.
        pools: devices of all drivers.
        gpus: those of our driver, by node.
        classes: device classes in wire form, by name.
        claims: in wire form, by ``NAMESPACE/NAME``; :meth:`take_claim` changes them.
        held: devices that allocated claims hold, each with the claim.
        pending: claims that are being allocated.
        users: uids of pods by the claims that they name, ``NAMESPACE/NAME``, in the order in which they came.
    """

    def __init__(self) -> None:
        self.is_known = False
        self.pools = DevicePools()
        self.gpus: dict[str, GpuSlice] = {}
        self.classes: dict[str, Obj] = {}
        self.claims: dict[str, Obj] = {}
        self.held: dict[DeviceId, str] = {}
        self.pending: set[str] = set()
        self.users: dict[str, dict[str, None]] = {}
        self._visible: dict[tuple[str, ...], frozenset[str] | None] = {}

    def take(self, slices: Iterable[Obj], classes: Iterable[Obj], claims: Iterable[Obj]) -> None:
        """Take all objects of a cluster, in wire form; from now on all is known."""
        for obj in slices:
            self.take_slice(obj)
        self.classes = {one["metadata"]["name"]: one for one in classes}
        for one in claims:
            self.take_claim(f"{one['metadata']['namespace']}/{one['metadata']['name']}", one)
        self.is_known = True

    def take_slice(self, obj: Obj, *, is_gone: bool = False) -> Collection[str] | None:
        """Take a slice, or that it is gone; return the nodes that may have others now, None for all."""
        self._visible.clear()
        changed = self.pools.take(obj, is_gone=is_gone)
        spec = obj["spec"]
        if spec["driver"] == DRIVER and (node := spec.get("nodeName")):
            known = self.pools.slice_of(obj["metadata"]["name"])
            if known is None:
                self.gpus.pop(node, None)
            else:
                self.gpus[node] = GpuSlice.of(known)
        return changed

    def take_claim(self, key: str, claim: Obj | None) -> list[DeviceId]:
        """Take a claim as it is now, None once it is gone; return the devices that it has got or given up."""
        before = held_devices(self.claims.pop(key, None))
        after = held_devices(claim)
        if claim is not None:
            self.claims[key] = claim
            if (claim.get("status") or {}).get("allocation"):
                self.pending.discard(key)
        for device in before:
            if self.held.get(device) == key:
                del self.held[device]
        self.held.update((device, key) for device in after)
        return list(set(before).symmetric_difference(after))

    def is_news(self, key: str, claim: Obj | None) -> bool:
        """Return whether a claim says anything new that decides about pods; a finalizer does not."""

        def said(one: Obj | None) -> tuple[Any, ...] | None:
            if one is None:
                return None
            return one.get("spec"), one.get("status") or {}, one["metadata"].get("deletionTimestamp")

        return said(self.claims.get(key)) != said(claim)

    def note(self, pod: PodView) -> None:
        """Note which claims a pod names, as it says it."""
        for key in pod.named_claims:
            self.users.setdefault(key, {})[pod.uid] = None

    def forget(self, pod: PodView) -> None:
        """Forget a pod that is over."""
        for key in pod.named_claims:
            users = self.users.get(key, {})
            users.pop(pod.uid, None)
            if not users:
                self.users.pop(key, None)

    def newly_shared(self, pod: PodView) -> list[str]:
        """Return the claims of which a pod is the second user: from now on they are shared."""
        return [key for key in pod.named_claims if list(self.users[key])[1:] == [pod.uid]]

    def is_idle(self, key: str, waiting: Collection[str]) -> bool:
        """Return whether a claim is allocated, for nobody but pods that wait, given by uid."""
        status = (self.claims.get(key) or {}).get("status") or {}
        users = [one["uid"] for one in status.get("reservedFor") or ()]
        return bool(status.get("allocation")) and all(uid in waiting for uid in users)

    def on_node(self, node: NodeView) -> NodeView:
        """Return a node with the devices that claims can get there; GPUs of ours go to claims alone."""
        if pools := self.pools.on_node(node):
            node = msgspec.structs.replace(node, pools=pools)
        found = self.gpus.get(node.name)
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
        held: list[DeviceId] = []
        for _, name in pod.device_claims:
            claim = self.claims.get(f"{pod.namespace}/{name}") or {}
            reserved = (claim.get("status") or {}).get("reservedFor") or [{}]
            if reserved[0].get("uid") == pod.uid:
                held += held_devices(claim)
        if not held:
            return pod
        known = self.gpus.get(pod.node_name)
        uuids = {device.id: uuid for uuid, device in known.devices.items()} if known else {}
        found = [uuids[device] for device in held if device in uuids]
        request = {**pod.request, GPU: pod.request.get(GPU, 0) + len(found)} if found else pod.request
        chosen = tuple(dict.fromkeys([*pod.gpu_uuids, *found]))
        return msgspec.structs.replace(pod, request=request, gpu_uuids=chosen, devices=frozenset(held))

    def _asking(self, pod: PodView) -> PodView:
        if not self.is_known:
            raise ClaimRefused(
                "asks for devices by claims, and this scheduler cannot read resource.k8s.io/v1 here"
            )
        terms: list[tuple[Obj, ...]] = []
        wired: list[tuple[str, ClaimDemand]] = []
        others: list[tuple[str, ClaimDemand]] = []
        selectors: tuple[str, ...] | None = None
        shared = []
        for name, obj_name in pod.device_claims:
            key = f"{pod.namespace}/{obj_name}"
            claim = self._claim(pod, key, name if not obj_name else "")
            if allocation := (claim.get("status") or {}).get("allocation"):
                if chosen := (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms"):
                    terms.append(tuple(chosen))
                continue
            demand = read_demand(obj_name, claim["spec"], self.classes)
            is_shared = len(self.users.get(key, ())) > 1
            asked = None if is_shared else self._by_wires(demand)
            if asked is not None and selectors in (None, asked):
                selectors = asked
                wired.append((obj_name, demand))
            else:
                others.append((obj_name, demand))
                shared += [obj_name] if is_shared else []
        if wired and pod.request.get(GPU):
            raise ClaimRefused(f"asks for {GPU} and by claims: one pod uses one of the two")
        pod = self._with_gpus(pod, wired, selectors or ())
        told = [[len(wired), *(d for _, d in wired)], selectors, terms, [d for _, d in others], shared]
        return msgspec.structs.replace(
            pod,
            demands=tuple(others),
            volume_terms=(*pod.volume_terms, *terms),
            shape=pod.shape + _encoder.encode(told),
        )

    def _claim(self, pod: PodView, key: str, being_made: str) -> Obj:
        """Return a claim that a pod may use, or have allocated for it."""
        claim = None if being_made else self.claims.get(key)
        if claim is None:
            where = f"`{being_made}`, being made" if being_made else f"{key}, which does not exist"
            raise ClaimRefused(f"waits for resource claim {where}")
        if claim["metadata"].get("deletionTimestamp"):
            raise ClaimRefused(f"resource claim {key} is being deleted")
        if key in self.pending:
            raise ClaimRefused(f"waits for resource claim {key}, which is being allocated")
        status = claim.get("status") or {}
        reserved = {one["uid"] for one in status.get("reservedFor") or ()}
        if status.get("allocation") and len(reserved) >= USERS_MAX and pod.uid not in reserved:
            raise ClaimRefused(f"resource claim {key} is used by {USERS_MAX} pods, the most it may be")
        return claim

    def _by_wires(self, demand: ClaimDemand) -> tuple[str, ...] | None:
        """Return the selectors of a claim for GPUs of ours that is served by their links; None for others."""
        choices = [choice for request in demand.requests for choice in request.choices]
        if demand.constraints or any(map(_is_special, choices)):
            return None
        asked = {tuple(sorted(choice.selectors)) for choice in choices}
        return asked.pop() if len(asked) == 1 and self._are_ours(choices[0]) else None

    def _are_ours(self, choice: Choice) -> bool:
        """Return whether all devices that match are GPUs of ours, and there are some."""
        visible = self._matching(choice)
        return visible is None or bool(visible)

    def _matching(self, choice: Choice) -> frozenset[str] | None:
        """Return the GPUs of ours that match, None for all healthy ones; none if others' devices match, too.

        Remembered until a slice changes; else 2 µs for each device of the cluster.
        """
        selectors = tuple(sorted(choice.selectors))
        if selectors not in self._visible:
            self._visible[selectors] = self._find(choice)
        return self._visible[selectors]

    def _find(self, choice: Choice) -> frozenset[str] | None:
        if not self.gpus:
            return frozenset()
        try:
            ours = {device.id for one in self.gpus.values() for device in one.devices.values()}
            if any(device.id not in ours and _matches(choice, device) for device in self.pools):
                return frozenset()
            found, is_whole = set(), True
            for one in self.gpus.values():
                for place, (uuid, device) in enumerate(one.devices.items()):
                    if not device.taints and device.matches(choice.rules):
                        found.add(uuid)
                    elif one.gpus is None or one.gpus.healthy >> place & 1:
                        is_whole = False
        except NoValue:
            return frozenset()  # a node says so when it is tried
        return None if is_whole and found else frozenset(found)

    def _with_gpus(
        self, pod: PodView, claims: Sequence[tuple[str, ClaimDemand]], selectors: tuple[str, ...]
    ) -> PodView:
        """Return a pod with GPUs of ours that its claims ask for."""
        shares, first = [], 0
        choices = [(name, request.choices[0]) for name, demand in claims for request in demand.requests]
        for claim, choice in choices:
            shares.append((claim, choice.name, first, first + choice.count))
            first += choice.count
        if not choices:
            return pod
        names = dict(pod.device_claims)
        by_container = [
            (container, start, end)
            for container, used, part in pod.claim_users
            for claim, request, start, end in shares
            if names.get(used) == claim and part in ("", request)
        ]
        return msgspec.structs.replace(
            pod,
            request={**pod.request, GPU: first},
            claim_shares=tuple(shares),
            gpu_shares=tuple(by_container),
            visible_gpus=self._matching(choices[0][1]),
        )

    def allocated(self, key: str, users: Sequence[Binding]) -> Obj:
        """Return the status of a claim with the devices that a decision has chosen, and all who use it.

        Args:
            key: ``NAMESPACE/NAME`` of the claim.
            users: decisions about pods that name it.

        Raises:
            ClaimRefused: a device is gone, another claim has it by now, or it is not what the claim asks for.
        """
        claim = self.claims.get(key)
        if claim is None:
            raise ClaimRefused(f"claim {key} is gone")
        status = dict(claim.get("status") or {})
        new = {one.uid for one in users}
        status["reservedFor"] = [
            *(one for one in status.get("reservedFor") or () if one["uid"] not in new),
            *({"resource": "pods", "name": one.pod.partition("/")[2], "uid": one.uid} for one in users),
        ]
        if len(status["reservedFor"]) > USERS_MAX:
            raise ClaimRefused(f"claim {key} would be used by more than {USERS_MAX} pods")
        name = key.partition("/")[2]
        found = [allocation for one in users for owner, allocation in one.allocations if owner == name]
        found += [
            self._by_uuids(name, claim, one) for one in users if name in (own for own, _, _ in one.claims)
        ]
        if len(found) > bool(not status.get("allocation")):
            raise ClaimRefused(f"claim {key} is given to another pod at the same time")
        for allocation in found:
            for device in held_devices({"status": {"allocation": allocation}}):
                if device in self.held:
                    raise ClaimRefused(f"device {device.name} of pool {device.pool} has been given away")
            status["allocation"] = allocation
        return status

    def _by_uuids(self, name: str, claim: Obj, binding: Binding) -> Obj:
        """Return the allocation of GPUs of ours."""
        demand = read_demand(name, claim["spec"], self.classes)
        choices = {request.name: request.choices[0] for request in demand.requests}
        known, given = self.gpus.get(binding.node), []
        for owner, request, uuids in binding.claims:
            for uuid in uuids if owner == name else ():
                device = known.devices.get(uuid) if known else None
                if device is None:
                    raise ClaimRefused(f"device {uuid} of node {binding.node} is gone")
                if device.taints or not device.matches(choices[request].rules):
                    what = f"device {uuid} is not for request {request} of claim {name} by "
                    rule = "its selectors; pods of one gang with different selectors are not served here"
                    raise ClaimRefused(what + rule)
                given.append(GivenDevice(choices[request], device))
        return allocation_of(demand, given)


def _is_special(choice: Choice) -> bool:
    """Return whether a choice asks for more than so many devices."""
    return "/" in choice.name or not choice.count or choice.is_admin or bool(choice.tolerations)


def _matches(choice: Choice, device: Any) -> bool:
    try:
        return bool(device.matches(choice.rules))
    except NoValue:
        return False
