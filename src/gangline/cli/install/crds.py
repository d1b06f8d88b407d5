"""``gangline crds``: the custom resource definitions, for any cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gangline.cli.options.target import target_options
from gangline.client.target import ClusterTarget

if TYPE_CHECKING:
    from gangline.jobs.gang import Dialect


@click.command("crds")
@click.option("-o", "--output", type=click.Choice(["yaml", "json", "name"]), default="yaml")
@click.option(
    "--gang-scheduling",
    default="",
    metavar="NAME",
    help="Also what this scheduler reads: the PodGroup of volcano or of scheduler-plugins, and queues.",
)
@click.option(
    "--install",
    is_flag=True,
    help="Install them instead of printing. Definitions that others wrote are left as they are.",
)
@click.option("--replace", is_flag=True, help="With --install: also where somebody else's definition stands.")
@target_options(namespace=False)
def command(output: str, gang_scheduling: str, install: bool, replace: bool, target: ClusterTarget) -> None:
    """Print the custom resource definitions, for `kubectl apply --server-side -f -`, or install them."""
    import asyncio

    from gangline.api.codec import dump_json, dump_yaml
    from gangline.api.crds import crds, gang_crds
    from gangline.jobs.gang import dialect_of

    found = crds()
    dialect = dialect_of(gang_scheduling)
    gangs = [crd for crd in gang_crds() if dialect and _is_read_by(dialect, crd)]
    if install:
        asyncio.run(_install(target, [*found, *gangs], replace=replace))
    elif output == "name":
        print("\n".join(one["metadata"]["name"] for one in [*found, *gangs]))
    elif output == "json":
        print(dump_json({"apiVersion": "v1", "kind": "List", "items": [*found, *gangs]}))
    else:
        print(dump_yaml(*found, *gangs), end="")


def _is_read_by(dialect: Dialect, crd: dict[str, Any]) -> bool:
    """Whether a scheduler reads a kind: those of its group, and Gangline's reads Volcano's queues too."""
    from gangline.api.pod_group import GANGLINE_SCHEDULER
    from gangline.api.resources import VOLCANO_QUEUES

    if crd["spec"]["group"] == dialect.resource.group:
        return True
    return dialect.scheduler == GANGLINE_SCHEDULER and crd["spec"]["names"]["kind"] == VOLCANO_QUEUES.kind


async def _install(target: ClusterTarget, definitions: list[dict[str, Any]], *, replace: bool) -> None:
    from gangline.client.target import open_client
    from gangline.installation.definitions import install_definitions

    async with open_client(target) as client:
        await install_definitions(client, definitions, print, replace=replace)
