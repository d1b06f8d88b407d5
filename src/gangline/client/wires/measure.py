"""Measure the wires of nodes: pods that all-reduce, and what they found written on the node."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gangline.api.core import Pod
from gangline.api.resources import NODES, PODS
from gangline.bench import wire_ranks
from gangline.client.jobs.cluster_view import look
from gangline.client.run.program_job import IMAGE, volumes_of
from gangline.client.target import ClusterTarget, open_client
from gangline.client.wires.pods import PodWorld, WirePlan, rates_of, read_records
from gangline.clock import format_time, now
from gangline.errors import ClusterError, UserError
from gangline.kube.verbs import ObjectClient
from gangline.launch.program import resolve_program
from gangline.placement import NodeView
from gangline.placement.snapshot import BY_WIRES_TAINT
from gangline.topology import (
    RATES_ANNOTATION,
    Machine,
    Part,
    WireRates,
    predicted_gb_s,
    sets_to_measure,
)
from gangline.topology.network import CLIQUE_LABEL, on_network
from gangline.workloads.requests import GPU

LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class WireQuestion:
    """What is to be measured, and how.

    Attributes:
        nodes: names of one node, or of two.
        every: every set of GPUs, not one of each kind.
        ranks: on nodes without GPUs; None for 2.
        size_bytes: of one rank's tensor.
        image: of the pods; empty on the one-machine cluster.
        python: of the pods; empty for this one here, for ``python3`` elsewhere.
        scheduler: of the pods; empty for the cluster's own.
        timeout_s: within which the pods end.
        is_kept: write the rates on the node.
    """

    nodes: tuple[str, ...]
    every: bool
    ranks: int | None
    size_bytes: int
    image: str
    python: str
    scheduler: str
    timeout_s: float
    is_kept: bool


async def measure_wires(target: ClusterTarget, asked: WireQuestion) -> tuple[WireRates, bool]:
    """Return what was measured, and whether it was written on the first node.

    Raises:
        UserError: a node is not there, ranks are named for one with GPUs, or no GPU took part.
        ClusterError: the pods failed or did not end in time.
    """
    nodes = asked.nodes
    async with open_client(target) as client:
        view = await look(client)
        views = [_node(view.snapshot.nodes, name) for name in nodes]
        machine = _machine(views[0])
        if machine is not None and asked.ranks is not None:
            raise UserError(f"--ranks {asked.ranks}: node `{nodes[0]}` has GPUs, and one rank for each")
        each = min(len(one.gpus.uuids) if one.gpus else asked.ranks or 2 for one in views)
        if machine is not None and machine.count > each:
            machine = machine.subset(range(each))
        if machine is not None:
            _check_alike(views)
        sets = sets_to_measure(machine, every=asked.every) if machine else _lowest_sets(each)
        plan = WirePlan(nodes, each, sets, asked.size_bytes)
        world = _world(target, client.connection.namespace, each if machine else 0, asked)
        async with _pods(client, world, plan, asked.timeout_s) as log:
            records = read_records(log.splitlines(), plan)
        devices = _devices(views[0], records.uuids[:each])
        rates = rates_of(records, plan, devices, _predictions(plan, machine, views), format_time(now()))
        is_simulated = views[0].gpus is not None and views[0].gpus.source == "simulated"
        if machine is not None and not rates.is_of_gpus and not is_simulated:
            raise UserError(f"no GPU of node `{nodes[0]}` took part: the image has no torch with CUDA")
        is_written = machine is not None and asked.is_kept
        if is_written:
            await _write(client, nodes[0], rates)
    return rates, is_written


def _node(nodes: Sequence[NodeView], name: str) -> NodeView:
    found = next((node for node in nodes if node.name == name), None)
    if found is None:
        names = ", ".join(sorted(node.name for node in nodes))
        raise UserError(f"there is no node `{name}`", hint=f"there are {names}")
    return found


def _check_alike(views: Sequence[NodeView]) -> None:
    """Refuse a second node between which and the first no network is measured.

    Raises:
        UserError: it has no GPUs, or NVLink joins both.
    """
    for node in views[1:]:
        if node.gpus is None:
            raise UserError(f"node `{node.name}` has no GPUs whose links are known, `{views[0].name}` has")
        clique = node.labels.get(CLIQUE_LABEL)
        if clique and clique == views[0].labels.get(CLIQUE_LABEL):
            raise UserError(
                f"nodes `{views[0].name}` and `{node.name}` are joined by NVLink (label {CLIQUE_LABEL})",
                hint="name a second node of another clique: between these two no network is measured",
            )


def _machine(node: NodeView) -> Machine | None:
    """Return the machine of a node as it is predicted; None without GPUs whose links are known."""
    return on_network(node.gpus.machine.unmeasured, node.labels) if node.gpus else None


def _lowest_sets(count: int) -> tuple[int, ...]:
    return tuple((1 << size) - 1 for size in range(2, count + 1))


def _predictions(plan: WirePlan, machine: Machine | None, views: Sequence[NodeView]) -> list[float]:
    """Return what the model says of each set, 0 where it knows no links."""
    if machine is None:
        return [0.0] * len(plan.rank_sets())
    found = [predicted_gb_s([Part(machine, mask)]) for mask in plan.sets]
    if len(views) > 1:
        second = _machine(views[1]) or machine
        pairs = zip((machine, second), views, strict=True)
        parts = [Part(one, (1 << plan.each) - 1, view.labels.get(CLIQUE_LABEL, "")) for one, view in pairs]
        found.append(predicted_gb_s(parts))
    return found


def _devices(node: NodeView, uuids: Sequence[str]) -> list[int]:
    """Return the device index of each rank: by its GPU where it had one, else by its number."""
    gpus = node.gpus
    if gpus is None:
        return list(range(len(uuids)))
    known = dict(zip(gpus.uuids, gpus.indices, strict=True))
    return [known.get(uuid, gpus.indices[rank]) for rank, uuid in enumerate(uuids)]


def _world(target: ClusterTarget, namespace: str, gpus: int, asked: WireQuestion) -> PodWorld:
    """Return what the pods run in: on this machine this Python, with the folders that it needs."""
    name, tolerated = f"wires-{os.urandom(3).hex()}", (GPU, BY_WIRES_TAINT.key)
    if not target.is_local:
        line = (asked.python or "python3",)
        return PodWorld(name, namespace, asked.image, line, gpus, asked.scheduler, tolerated=tolerated)
    here = Path(__file__).parent
    program = resolve_program(
        (asked.python or sys.executable,), cwd=Path.cwd(), code=here, environment=os.environ
    )
    readable = tuple(folder for folder in program.folders if folder.read_only)
    volumes, mounts = volumes_of(program._replace(folders=readable))
    return PodWorld(name, namespace, IMAGE, program.line, gpus, "", volumes, mounts, tolerated)


@asynccontextmanager
async def _pods(
    client: ObjectClient, world: PodWorld, plan: WirePlan, timeout_s: float
) -> AsyncIterator[str]:
    """Run the pods to their end and yield the log of the first; they are deleted whatever happens.

    Raises:
        ClusterError: they do not start or end in time, or fail, with what they said last.
    """
    source = Path(wire_ranks.__file__).read_text(encoding="utf-8")
    made: list[str] = []
    try:
        async with asyncio.timeout(timeout_s):
            first = await client.create(PODS, world.pod(plan, 0, "0.0.0.0", source))
            made.append(first["metadata"]["name"])
            if len(plan.nodes) > 1:
                at = await _until(client, world, made[0], lambda pod: bool(pod.status.pod_ip))
                second = world.pod(plan, 1, at.status.pod_ip, source)
                made.append((await client.create(PODS, second))["metadata"]["name"])
            last = await _until(client, world, made[0], lambda _: False)
            pieces = [piece async for piece in client.logs(made[0], world.namespace)]
        log = b"".join(pieces).decode(errors="replace")
        if last.status.phase != "Succeeded":
            tail = "\n".join(f"  {line}" for line in log.splitlines()[-12:])
            raise ClusterError(f"the ranks on node `{plan.nodes[0]}` failed:\n{tail}")
        yield log
    except TimeoutError:
        raise ClusterError(
            f"the ranks did not end within {timeout_s:.0f} s",
            hint=f"`gangline explain pod/{world.name}-0` says whether one waits for room; then --timeout S",
        ) from None
    finally:
        for name in made:
            await client.delete(PODS, name, world.namespace)


async def _until(client: ObjectClient, world: PodWorld, name: str, holds: Callable[[Pod], bool]) -> Pod:
    """Return a pod once something holds of it, or it is over."""
    while True:
        pod = msgspec.convert(await client.get(PODS, name, world.namespace), Pod)
        if holds(pod) or pod.is_finished:
            return pod
        await asyncio.sleep(LOOK_S)


async def _write(client: ObjectClient, node: str, rates: WireRates) -> None:
    text = msgspec.json.encode(rates).decode()
    await client.patch(NODES, node, {"metadata": {"annotations": {RATES_ANNOTATION: text}}})
