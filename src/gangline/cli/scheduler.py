"""``gangline scheduler``: the scheduler alone, against any Kubernetes API."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click


@click.command("scheduler")
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Kubeconfig of the cluster.  [default: the pod's own account inside a cluster, else yours]",
)
@click.option("--context", metavar="CONTEXT", help="A context of the kubeconfig.")
def command(kubeconfig: Path | None, context: str | None) -> None:
    """Run the scheduler against a cluster until SIGTERM: it binds pods that name gangline-scheduler."""
    asyncio.run(_serve(kubeconfig, context))


async def _serve(kubeconfig: Path | None, context: str | None) -> None:
    from gangline.cli.serve import run_until_stopped
    from gangline.cli.service import service_connection
    from gangline.kube.client import Client
    from gangline.scheduler.scheduler import Scheduler

    async with Client(service_connection(kubeconfig, context), user_agent="gangline-scheduler") as client:
        await run_until_stopped(Scheduler(client).run())
