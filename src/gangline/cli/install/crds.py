"""``gangline crds``: the custom resource definitions, for any cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gangline.cli.options.target import ClusterTarget, target_options

if TYPE_CHECKING:
    from gangline.jobs.gang import Dialect
    from gangline.kube.verbs import ObjectClient

served_limit_s = 30.0
"""How long an installed kind may take until the server has it."""


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
        asyncio.run(_install(target, found, gangs, replace=replace))
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


async def _install(
    target: ClusterTarget, jobs: list[dict[str, Any]], gangs: list[dict[str, Any]], *, replace: bool
) -> None:
    """Write the definitions where no others stand: a job needs ours, a gang's may be anybody's.

    Raises:
        ClusterError: somebody else's definition of a job kind stands there.
    """
    from gangline.cli.options.target import open_client
    from gangline.errors import ClusterError
    from gangline.kube.definitions import ensure

    async with open_client(target) as client:
        for crd in (*jobs, *gangs):
            name = crd["metadata"]["name"]
            verb, verdict = await ensure(client, crd, replace=replace)
            if verdict is not None and verb == "left" and crd in jobs:
                raise ClusterError(
                    f"customresourcedefinition/{name} is left as it is: {verdict.message}",
                    hint="jobs written for it may not fit Gangline's; "
                    "to replace it: gangline crds --install --replace",
                )
            await _until_served(client, crd)
            word = f"left as it is, {verdict.owner}" if verdict and verb == "left" else verb
            print(f"customresourcedefinition/{name} {word}")


async def _until_served(client: ObjectClient, crd: dict[str, Any]) -> None:
    """Wait until the server has the version of the kind that we use."""
    import asyncio

    from gangline.api.resources import Resource
    from gangline.errors import ClusterError
    from gangline.kube.errors import NotFound

    names, group = crd["spec"]["names"], crd["spec"]["group"]
    version = next(one["name"] for one in crd["spec"]["versions"] if one["storage"])
    resource = Resource(group, version, names["plural"], names["kind"])
    try:
        async with asyncio.timeout(served_limit_s):
            while True:
                try:
                    await client.any(resource)
                    return
                except NotFound:
                    await asyncio.sleep(0.05)
    except TimeoutError:
        raise ClusterError(
            f"the cluster does not serve {resource.kind} of {resource.api_version} "
            f"{served_limit_s:g} s after its definition {crd['metadata']['name']} was installed",
            hint=f"see why with `kubectl describe crd {crd['metadata']['name']}`",
        ) from None
