"""How many GPUs a manifest asks for, and whether a cluster could ever give them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gangline.units import quantity_ceil
from gangline.workloads.gpu_source import SOURCE_LABEL, gpus_in_words, kind_of
from gangline.workloads.kinds import find_kind, pod_templates
from gangline.workloads.requests import GPU, counts_as_gpu, pod_gpus, pod_requests, read_spec

Obj = dict[str, Any]


class GpuRoom(msgspec.Struct, frozen=True):
    """The GPUs of a cluster, free or not: what it can ever give.

    Attributes:
        nodes: how many each node has.
        kind: ``real``, ``simulated``, or empty where nobody says.
        cores: the most that one node has; ranks without a GPU run on these.
    """

    nodes: tuple[int, ...]
    kind: str = ""
    cores: int = 1

    @classmethod
    def of(cls, nodes: Iterable[Obj], resource: str = GPU) -> GpuRoom:
        """Return the room of nodes in wire form, in GPUs of one maker."""
        counts, kind, cores = [], "", 1
        for node in nodes:
            allocatable = (node.get("status") or {}).get("allocatable") or {}
            counts.append(quantity_ceil(allocatable.get(resource, 0)))
            cores = max(cores, int(quantity_ceil(allocatable.get("cpu", 1))))
            if counts[-1]:
                kind = kind_of((node["metadata"].get("labels") or {}).get(SOURCE_LABEL, "")) or kind
        return cls(tuple(counts), kind, cores)

    @property
    def total(self) -> int:
        """GPUs of all nodes."""
        return sum(self.nodes)

    @property
    def largest(self) -> int:
        """The most that one node has."""
        return max(self.nodes, default=0)

    def pods_of(self, gpus: int, *, beside: int = 0) -> int:
        """Return how many pods of that many GPUs fit at once, beside one pod that asks ``beside``."""
        free = sorted(self.nodes, reverse=True)
        if beside and free and free[0] >= beside:
            free[0] -= beside
        return sum(count // gpus for count in free)


class GpuDemand(msgspec.Struct, frozen=True):
    """The GPUs that the pods of one object ask for at once.

    Attributes:
        pods: how many pods are alike and run together: the workers of an MPIJob, else one.
        each: GPUs of one of them.
        beside: GPUs of the launcher, unless it is the only pod.
        resource: whose GPUs.
    """

    pods: int = 0
    each: int = 0
    beside: int = 0
    resource: str = GPU

    @classmethod
    def of(cls, obj: Obj) -> GpuDemand:
        """Return the demand of a manifest, whatever its kind. Pods of a Job may run one after the other."""
        resource = _resource_of(obj)
        kind = find_kind(str(obj.get("kind")))
        if kind is not None and kind.starts_whole:
            roles = kind.replicas(obj)
            if len(roles) == 1:  # the launcher alone, beside its ranks
                return cls(pods=1, each=template_gpus(roles[0].template), resource=resource)
            alike = [role for role in roles if role.role != kind.primary]
            return cls(
                pods=sum(role.count for role in alike),
                each=max((template_gpus(role.template) for role in alike), default=0),
                beside=sum(template_gpus(role.template) for role in roles if role.role == kind.primary),
                resource=resource,
            )
        each = max((template_gpus(template) for _, template in pod_templates(obj)), default=0)
        return cls(pods=1, each=each, resource=resource)

    @property
    def total(self) -> int:
        """GPUs of all pods together."""
        return self.pods * self.each + self.beside

    def shortage(self, room: GpuRoom) -> str:
        """Return why the cluster can never give them, in words; empty when it can."""
        if not self.total:
            return ""
        if self.total > room.total:
            has = (
                gpus_in_words(room.total, room.kind)
                if room.kind == "simulated"
                else str(room.total or "none")
            )
            place = "this cluster" if room.kind == "simulated" else "this machine"
            pods = f" in {self.pods} pods of {self.each}" if self.pods > 1 else ""
            return f"it asks for {gpus_in_words(self.total)}{pods}, {place} has {has}"
        biggest = max(self.each, self.beside)
        if biggest > room.largest:
            largest = gpus_in_words(room.largest, room.kind)
            return f"one of its pods asks {gpus_in_words(biggest)}, the largest node has {largest}"
        fitting = room.pods_of(self.each, beside=self.beside) if self.each else self.pods
        if fitting < self.pods:
            counts = " + ".join(str(count) for count in room.nodes if count)
            return (
                f"it asks for {self.pods} pods of {gpus_in_words(self.each)} at once, "
                f"{fitting} fit on nodes with {counts} {room.kind} GPUs".replace("  ", " ")
            )
        return ""


def template_gpus(template: Obj) -> int:
    """Return the GPUs of one pod."""
    return pod_gpus(template.get("spec"))


def _resource_of(obj: Obj) -> str:
    """Return by which name a manifest asks for GPUs: NVIDIA's where one does, else the first."""
    asked = [pod_requests(read_spec(template.get("spec"))) for _, template in pod_templates(obj)]
    names = [name for amounts in asked for name in amounts if counts_as_gpu(name)]
    return GPU if GPU in names else next(iter(names), GPU)


def nodes_for(demand: GpuDemand) -> tuple[int, int]:
    """Return GPUs of each node and number of nodes on which the demand fits: eight each where that does."""
    each = max(8, demand.each, demand.beside)
    room = GpuRoom((each,))
    pods = max(1, room.pods_of(demand.each)) if demand.each else 1
    count = -(-demand.pods // pods) if demand.each else 1
    if (
        demand.beside
        and GpuRoom((each,) * count).pods_of(demand.each or 1, beside=demand.beside) < demand.pods
    ):
        count += 1
    return each, count


def asking(documents: Sequence[Obj]) -> bool:
    """Return whether any manifest asks for a GPU."""
    return any(GpuDemand.of(document).total for document in documents)
