"""``gangline scheduler``: the scheduler alone, against any Kubernetes API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from gangline.errors import UserError


@click.command("scheduler")
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Kubeconfig of the cluster.  [default: the pod's own account inside a cluster, else yours]",
)
@click.option("--context", metavar="CONTEXT", help="A context of the kubeconfig.")
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Place the pods with this schedulerName; may be repeated.  [default: gangline-scheduler]",
)
@click.option(
    "--levels",
    default="",
    metavar="LABEL,...",
    help="Node labels of the network's levels, the widest first.  "
    "[default: topology.kubernetes.io/zone,gangline.dev/block,gangline.dev/rack]",
)
@click.option(
    "--node-selector",
    default="",
    metavar="LABEL=VALUE,...",
    help="Use only nodes with these labels, and leave the others to other schedulers.",
)
@click.option("--leader-elect", is_flag=True, help="Work only while holding a Lease; others stand by.")
@click.option(
    "--lock-namespace",
    default="gangline-system",
    metavar="NAME",
    show_default=True,
    help="Namespace of that Lease, which must exist.",
)
@click.option(
    "--health-port", type=int, default=0, metavar="PORT", help="Serve /healthz and /readyz.  [default: none]"
)
@click.option(
    "--listen",
    default="127.0.0.1",
    metavar="ADDRESS",
    show_default=True,
    help="Where that port listens; 0.0.0.0 in a pod.",
)
def command(kubeconfig: Path | None, context: str | None, **options: Any) -> None:
    """Run the scheduler against a cluster until SIGTERM: it binds pods that name gangline-scheduler."""
    check_selector(options["node_selector"])
    asyncio.run(_serve(kubeconfig, context, options))


def check_selector(text: str) -> None:
    """Check the labels of ``--node-selector``.

    Raises:
        UserError: they are of another form.
    """
    for part in text.split(",") if text else ():
        key, equals, _ = part.partition("=")
        if not key.strip() or not equals or key.endswith("!"):
            raise UserError(
                f"--node-selector {text}: `{part}` is no label with a value",
                hint="write LABEL=VALUE, several with commas between: example.com/pool=training",
            )


async def _serve(kubeconfig: Path | None, context: str | None, options: dict[str, Any]) -> None:
    from gangline.cli.serve import run_until_stopped
    from gangline.cli.service import service_connection
    from gangline.kube.client import Client
    from gangline.placement.policy import Policy
    from gangline.scheduler.scheduler import DEFAULT_NAMES
    from gangline.scheduler.service import SchedulerService, ServiceOptions
    from gangline.topology.network import DEFAULT_LEVELS, parse_levels

    levels = tuple(level.label for level in parse_levels(options["levels"])) or DEFAULT_LEVELS
    service = ServiceOptions(
        names=tuple(options["names"]) or DEFAULT_NAMES[:1],
        policy=Policy(levels=levels),
        node_selector=options["node_selector"],
        leader_elect=options["leader_elect"],
        lock_namespace=options["lock_namespace"],
        address=options["listen"],
        health_port=options["health_port"] or None,
    )
    async with Client(service_connection(kubeconfig, context), user_agent="gangline-scheduler") as client:
        await run_until_stopped(SchedulerService(client, service).run())
