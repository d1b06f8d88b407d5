"""The pods that measure the wires of nodes, and what their records say. Pure.

Plain pods, one on each node, so that they run on any Kubernetes; the program is in their command, so that
the image needs Python with torch, or with mpi4py, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.api.resources import PODS
from gangline.bench.wire_ranks import PLAN
from gangline.errors import UserError
from gangline.placement.snapshot import HOSTNAME_LABEL
from gangline.topology import NetworkRate, SetRate, WireRates
from gangline.train.records import parse_record
from gangline.workloads.requests import GPU

Obj = dict[str, Any]

CONTAINER = "ranks"
PORT = 29_733
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class WirePlan:
    """What is measured.

    Attributes:
        nodes: names of one node or of two.
        each: ranks of each, one for each GPU where it has some.
        sets: masks of ranks of the first node.
        size_bytes: of one rank's tensor.
    """

    nodes: tuple[str, ...]
    each: int
    sets: tuple[int, ...]
    size_bytes: int

    def rank_sets(self) -> list[list[int]]:
        """Return the sets as ranks; with two nodes all ranks of both come last."""
        found = [[rank for rank in range(self.each) if mask >> rank & 1] for mask in self.sets]
        return [*found, list(range(2 * self.each))] if len(self.nodes) > 1 else found

    def variable(self, number: int, master: str) -> str:
        """Return what tells the ranks of a node what to do."""
        return json.dumps(
            {
                "sets": self.rank_sets(),
                "each": self.each,
                "nodes": len(self.nodes),
                "node": number,
                "master": master,
                "port": PORT,
                "bytes": self.size_bytes,
                "rounds": ROUNDS,
            }
        )


@dataclass(frozen=True, slots=True)
class PodWorld:
    """What the pods run in.

    Attributes:
        name: of the first, with ``-0`` behind; a hostname.
        namespace: theirs.
        image: theirs.
        command: Python and its options, the program follows.
        gpus: that each asks for.
        scheduler: theirs; empty for the cluster's own.
        volumes, mounts: what they see of this machine.
        tolerated: keys of taints of nodes with GPUs.
    """

    name: str
    namespace: str
    image: str
    command: tuple[str, ...]
    gpus: int = 0
    scheduler: str = ""
    volumes: Sequence[Obj] = ()
    mounts: Sequence[Obj] = ()
    tolerated: tuple[str, ...] = (GPU,)

    def pod(self, plan: WirePlan, number: int, master: str, program: str) -> Obj:
        """Return the pod of a node.

        Args:
            plan: what is measured.
            number: of the node.
            master: address of the first pod; ``0.0.0.0`` for itself.
            program: source of ``wire_ranks``.
        """
        container: Obj = {
            "name": CONTAINER,
            "image": self.image,
            "command": [*self.command, "-c", program.replace("$(", "$$(")],
            "env": [{"name": PLAN, "value": plan.variable(number, master)}],
            "volumeMounts": [*self.mounts, {"name": "shm", "mountPath": "/dev/shm"}],
        }
        if self.gpus:
            container["resources"] = {"limits": {GPU: self.gpus}}
        spec: Obj = {
            "restartPolicy": "Never",
            "nodeSelector": {HOSTNAME_LABEL: plan.nodes[number]},
            "tolerations": [{"key": key, "operator": "Exists"} for key in self.tolerated],
            "containers": [container],
            "volumes": [*self.volumes, {"name": "shm", "emptyDir": {"medium": "Memory"}}],
        }
        if self.scheduler:
            spec["schedulerName"] = self.scheduler
        metadata = {"name": f"{self.name}-{number}", "namespace": self.namespace}
        return {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True)
class WireRecords:
    """What the ranks said.

    Attributes:
        backend: ``nccl``, ``gloo`` or ``mpi``.
        device: product name of their GPUs, or ``cpu``.
        uuids: of the GPU of each rank; empty without one.
        rates: ranks and their bus bandwidth in GB/s, in the order of the plan.
    """

    backend: str
    device: str
    uuids: tuple[str, ...]
    rates: tuple[tuple[tuple[int, ...], float], ...]


def read_records(lines: Iterable[str], plan: WirePlan) -> WireRecords:
    """Return what the log of the first pod says.

    Raises:
        UserError: a set of the plan is missing.
    """
    records = [record for line in lines if (record := parse_record(line)) is not None]
    ranks = next((record for record in records if record["kind"] == "wire-ranks"), None)
    rates = tuple((tuple(one["ranks"]), float(one["gb_s"])) for one in records if one["kind"] == "wires")
    if ranks is None or [list(found) for found, _ in rates] != plan.rank_sets():
        raise UserError(f"the ranks measured {len(rates)} of {len(plan.rank_sets())} sets, and ended")
    return WireRecords(ranks["backend"], ranks["device"], tuple(ranks["uuids"]), rates)


def rates_of(
    records: WireRecords,
    plan: WirePlan,
    devices: Sequence[int],
    predictions: Sequence[float],
    at: str,
) -> WireRates:
    """Return the measured rates of the first node.

    Args:
        records: of the ranks.
        plan: what was measured.
        devices: device index of each rank of the first node.
        predictions: bus bandwidth of each set in GB/s, in the order of the plan.
        at: when, RFC 3339.
    """
    inside, network = [], None
    for (ranks, measured), predicted in zip(records.rates, predictions, strict=True):
        gpus = tuple(sorted(devices[rank] for rank in ranks if rank < plan.each))
        if len(ranks) > plan.each:
            network = NetworkRate(plan.nodes[:2], gpus, measured, round(predicted, 4))  # type: ignore[arg-type]
        else:
            inside.append(SetRate(gpus, measured, round(predicted, 4)))
    return WireRates(records.backend, records.device, plan.size_bytes, at, tuple(inside), network)
