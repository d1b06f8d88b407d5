"""``gangline node``: faults of simulated GPUs, to see what becomes of the gangs that hold them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.options.target import target_options
from gangline.cli.subcommands import Subcommands
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import ClusterError, UserError
from gangline.units import plural

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient
    from gangline.topology import NodeGpus

PUBLISH_TIMEOUT_S = 20.0
PUBLISH_LOOK_S = 0.05


@click.group("node", cls=Subcommands)
def command() -> None:
    """Change nodes of the one-machine cluster."""


@command.command("set-gpu", short_help="make a simulated GPU unhealthy, or healthy again")
@click.argument("node")
@click.argument("index", type=click.IntRange(min=0))
@click.argument("health", type=click.Choice(["unhealthy", "healthy"]))
@target_options(namespace=False)
def set_gpu(node: str, index: int, health: str, target: ClusterTarget) -> None:
    """Make simulated GPU INDEX of NODE unhealthy, or healthy again; it stays so until it is changed.

    A gang that holds the GPU is taken back whole, and placed anew on healthy ones.
    """
    asyncio.run(_set(target, node, index, is_healthy=health == "healthy"))


async def _set(target: ClusterTarget, node: str, index: int, *, is_healthy: bool) -> None:
    from gangline.workloads.gpu_source import gpus_in_words

    async with open_client(target) as client:
        while not await _write(client, node, index, is_healthy=is_healthy):
            continue  # somebody else changed the node meanwhile
        gpus = await _published(client, node, index, is_healthy=is_healthy)
    word = "healthy" if is_healthy else "unhealthy"
    whole = gpus_in_words(len(gpus.indices), "simulated")
    print(f"GPU {index} of {node} is {word}: {gpus.healthy.bit_count()} of {whole} can be used")


async def _write(client: ObjectClient, node: str, index: int, *, is_healthy: bool) -> bool:
    """Write what a node's GPU shall be; False when the node has changed since it was read."""
    from gangline.api.resources import NODES
    from gangline.devices.inventory import UNHEALTHY_ANNOTATION, read_unhealthy
    from gangline.kube.errors import Conflict, NotFound
    from gangline.workloads.gpu_source import gpus_in_words

    try:
        found = await client.get(NODES, node)
    except NotFound:
        raise await _no_node(client, node) from None
    gpus = _simulated(found, node)
    if index not in gpus.indices:
        known = gpus_in_words(len(gpus.indices), "simulated")
        raise UserError(f"node `{node}` has no GPU {index}: it has {known}, 0 to {len(gpus.indices) - 1}")
    notes = found["metadata"].get("annotations") or {}
    sick = read_unhealthy(notes.get(UNHEALTHY_ANNOTATION, ""))
    sick = sick - {index} if is_healthy else sick | {index}
    value = ",".join(map(str, sorted(sick))) or None
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    patch = {"metadata": {**version, "annotations": {UNHEALTHY_ANNOTATION: value}}}
    try:
        await client.patch(NODES, node, patch)
    except Conflict:
        return False
    return True


def _simulated(node: dict[str, Any], name: str) -> NodeGpus:
    from gangline.topology import read_annotation
    from gangline.topology.annotation import ANNOTATION

    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    gpus = read_annotation(text, node=name) if text else None
    if gpus is None or gpus.source != "simulated":
        what = "has no GPU" if gpus is None else f"has {plural(len(gpus.indices), 'real GPU')}"
        raise UserError(
            f"node `{name}` {what}; only simulated ones can be made unhealthy by a command",
            hint="a cluster with simulated ones: gangline up --simulate-gpus 8 --cluster NAME",
        )
    return gpus


async def _no_node(client: ObjectClient, name: str) -> UserError:
    from gangline.api.resources import NODES

    names = [node["metadata"]["name"] for node in (await client.list(NODES)).items]
    return UserError(f"there is no node `{name}`", hint=f"there are {', '.join(names) or 'none'}")


async def _published(client: ObjectClient, node: str, index: int, *, is_healthy: bool) -> NodeGpus:
    """Wait until the node agent shows the change, and return the node's GPUs.

    Raises:
        ClusterError: it does not within 20 s.
    """
    from gangline.api.resources import NODES

    loop = asyncio.get_running_loop()
    deadline = loop.time() + PUBLISH_TIMEOUT_S
    while loop.time() < deadline:
        gpus = _simulated(await client.get(NODES, node), node)
        shown = bool(gpus.healthy >> gpus.indices.index(index) & 1)
        if shown == is_healthy:
            return gpus
        await asyncio.sleep(PUBLISH_LOOK_S)
    raise ClusterError(
        f"node `{node}` was told of GPU {index}, and does not show it after {PUBLISH_TIMEOUT_S:.0f} s",
        hint="`gangline status` says whether the node agent works",
    )
