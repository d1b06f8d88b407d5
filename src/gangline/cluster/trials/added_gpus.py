"""Simulated GPUs for single runs, on nodes of a cluster that is up: added before, taken away after."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gangline.api.resources import NODES
from gangline.devices.inventory import ADDED_ANNOTATION, RESOURCE, read_added
from gangline.errors import ClusterError
from gangline.workloads.gpu_demand import GpuDemand, GpuRoom, nodes_for
from gangline.workloads.job_state import finished
from gangline.workloads.kinds import find_kind

if TYPE_CHECKING:
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

PUBLISH_TIMEOUT_S = 30.0
PUBLISH_LOOK_S = 0.05


def run_of(obj: Obj) -> str:
    """Return the name under which a node keeps the GPUs that it shows for an object."""
    metadata = obj["metadata"]
    return f"{obj['kind']}/{metadata.get('namespace') or 'default'}/{metadata['name']}"


def add_gpus(cluster: Cluster, objects: Sequence[Obj]) -> int:
    """Have nodes without GPUs simulate what each object asks for, more nodes where there are too few.

    Returns:
        How many GPUs were added.

    Raises:
        ClusterError: the nodes do not show them in time.
    """
    bare = [name for name, room in _rooms(cluster) if not room]
    wanted = [(run_of(obj), *nodes_for(GpuDemand.of(obj))) for obj in objects]
    lacking = sum(count for _, _, count in wanted) - len(bare)
    if lacking > 0:
        known = {name for name, _ in _rooms(cluster)}
        cluster.ensure_up(nodes=len(known) + lacking)
        bare += sorted({name for name, _ in _rooms(cluster)} - known, key=lambda name: (len(name), name))
    try:
        return _show(cluster, wanted, bare)
    except BaseException:  # Ctrl-C too: nothing runs that would take them away after it
        settle_gpus(cluster)
        raise


def _show(cluster: Cluster, wanted: Sequence[tuple[str, int, int]], bare: Sequence[str]) -> int:
    """Have nodes simulate GPUs for runs (name, GPUs of each node, nodes), and wait until they show them."""
    shown: dict[str, int] = {}
    for run, each, count in wanted:
        for name in bare[len(shown) :][:count]:
            _change(cluster, name, {run: each})
            shown[name] = each
    deadline = time.monotonic() + PUBLISH_TIMEOUT_S
    while any(room < shown.get(name, 0) for name, room in _rooms(cluster)):
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the nodes {', '.join(shown)} do not show their simulated GPUs",
                hint="`gangline status` says whether the node agent works",
            )
        time.sleep(PUBLISH_LOOK_S)
    return sum(shown.values())


def settle_gpus(cluster: Cluster) -> None:
    """Take away the GPUs that were added for runs which are over or gone."""
    nodes = cluster.call(lambda client: client.list(NODES)).items
    runs = {run for node in nodes for run in added(node)}
    over = {run for run in runs if not cluster.call(partial(_goes_on, run=run))}
    for node in nodes:
        if gone := over & added(node).keys():
            _change(cluster, node["metadata"]["name"], dict.fromkeys(gone, 0))


async def _goes_on(client: ObjectClient, run: str) -> bool:
    from gangline.kube.errors import NotFound

    word, namespace, name = run.split("/", 2)
    kind = find_kind(word)
    if kind is None:
        return False
    try:
        live = await client.get(kind.resource, name, namespace)
    except NotFound:
        return False
    return not (kind.is_job and finished({"kind": word} | live))


def _rooms(cluster: Cluster) -> list[tuple[str, int]]:
    nodes = cluster.call(lambda client: client.list(NODES)).items
    return [(node["metadata"]["name"], GpuRoom.of([node], RESOURCE).total) for node in nodes]


def added(node: Obj) -> dict[str, int]:
    """Return for which runs a node shows how many GPUs."""
    return read_added((node["metadata"].get("annotations") or {}).get(ADDED_ANNOTATION, ""))


def _change(cluster: Cluster, name: str, changes: dict[str, int]) -> None:
    """Write for which runs a node simulates how many GPUs, 0 for no more."""

    async def write(client: ObjectClient) -> None:
        from gangline.kube.errors import Conflict

        while True:
            node = await client.get(NODES, name)
            after = {run: count for run, count in (added(node) | changes).items() if count}
            metadata = {
                "resourceVersion": node["metadata"]["resourceVersion"],
                "annotations": {ADDED_ANNOTATION: json.dumps(after) if after else None},
            }
            try:
                await client.patch(NODES, name, {"metadata": metadata})
                return
            except Conflict:
                continue  # somebody else changed the node meanwhile

    cluster.call(write)
