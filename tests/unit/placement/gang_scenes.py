"""Nodes, pods and gangs for tests of placement."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from gangline.placement.cycle import schedule
from gangline.placement.decisions import Decisions
from gangline.placement.gangs import Group
from gangline.placement.policy import Policy
from gangline.placement.snapshot import NodeView, PodView, Snapshot
from gangline.topology.annotation import NodeGpus, read_annotation
from gangline.topology.known import known_machine

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLIER = "2026-01-01T11:59:00Z"
OF_SHAPE = ("node_selector", "host_ports", "relations")
"""What decides, beside the request, where a pod fits."""


@lru_cache
def _gpus(name: str, unhealthy: tuple[int, ...]) -> NodeGpus:
    uuids = [f"{name}-{index}" for index in range(8)]
    annotation = known_machine("dgx1-v100").annotation(uuids, unhealthy=unhealthy)
    return read_annotation(json.dumps(annotation))


def dgx(name: str, *, wires: bool = True, unhealthy: Sequence[int] = (), **labels: str) -> NodeView:
    """A DGX-1 with 8 V100; GPU i of node n has the UUID n-i."""
    return NodeView(
        name=name,
        labels=labels,
        allocatable={"cpu": 80_000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8},
        gpus=_gpus(name, tuple(unhealthy)),
        by_wires=wires,
    )


def pod(name: str, gpus: int = 1, *, gang: str = "", **more: Any) -> PodView:
    request = {"cpu": 1000, "pods": 1} | ({"nvidia.com/gpu": gpus} if gpus else {}) | more.pop("request", {})
    values: dict[str, Any] = {
        "key": f"team/{name}",
        "uid": name,
        "request": request,
        "gang": f"team/{gang}" if gang else "",
        "gpu_shares": (("worker", 0, gpus),) if gpus else (),
        "created": EARLIER,
        "shape": repr((sorted(request.items()), *(more.get(name) for name in OF_SHAPE))).encode(),
    }
    return PodView(**(values | more))


def members(gang: str, count: int, gpus: int = 1, **more: Any) -> list[PodView]:
    return [pod(f"{gang}-worker-{index}", gpus, gang=gang, **more) for index in range(count)]


def held(name: str, node: str, *indices: int, **more: Any) -> PodView:
    """A pod that has these GPUs of a node."""
    uuids = tuple(f"{node}-{index}" for index in indices)
    return pod(name, len(indices), node_name=node, gpu_uuids=uuids, **more)


def group(name: str, size: int, **more: Any) -> Group:
    return Group(**({"key": f"team/{name}", "min_member": size, "created": EARLIER} | more))


def decide(
    nodes: Sequence[NodeView],
    waiting: Sequence[PodView],
    *groups: Group,
    bound: Sequence[PodView] = (),
    policy: Policy | None = None,
) -> Decisions:
    snapshot = Snapshot(nodes=tuple(nodes), pods=tuple(bound))
    table = {found.key: found for found in groups}
    return schedule(snapshot, waiting, now=NOW, policy=policy or Policy(), groups=table)


def gpus_of(decisions: Decisions, gang: str = "") -> dict[str, list[int]]:
    """Return the GPU indices that were given out, by node."""
    found: dict[str, list[int]] = {}
    for binding in decisions.bindings:
        if binding.pod.startswith(f"team/{gang}"):
            for _, uuids in binding.gpus:
                found.setdefault(binding.node, []).extend(int(uuid.rpartition("-")[2]) for uuid in uuids)
    return {node: sorted(indices) for node, indices in sorted(found.items())}


def reasons(decisions: Decisions) -> dict[str, str]:
    return {wait.gang.removeprefix("team/"): wait.reason for wait in decisions.waits}


def messages(decisions: Decisions) -> dict[str, str]:
    return {wait.gang.removeprefix("team/"): wait.message for wait in decisions.waits}
