"""``gangline scheduler``: the scheduler alone, against any Kubernetes API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gangline.cli.options.suspension import suspension_bounds, suspension_options
from gangline.cli.serve.service import (
    collect_rarely,
    connection_options,
    led_options,
    led_values,
    service_connection,
)
from gangline.errors import UserError
from gangline.placement import Policy
from gangline.topology import parse_levels
from gangline.topology.network import DEFAULT_LEVELS

DEFAULTS = Policy()


@click.command("scheduler")
@connection_options()
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
    help=f"Node labels of the network's levels, the widest first.  [default: {','.join(DEFAULT_LEVELS)}]",
)
@click.option(
    "--node-selector",
    default="",
    metavar="LABEL=VALUE,...",
    help="Use only nodes with these labels, and leave the others to other schedulers.",
)
@click.option(
    "--preempt/--no-preempt",
    default=True,
    show_default=True,
    help="Have gangs of lower priority give way to one that fits nowhere else.",
)
@click.option(
    "--backfill/--no-backfill",
    default=True,
    show_default=True,
    help="Let others pass a gang that waits for room, where that does not delay it.",
)
@click.option(
    "--overdue-after",
    type=click.IntRange(1),
    default=int(DEFAULTS.overdue_after_s),
    metavar="SECONDS",
    show_default=True,
    help="A gang that has waited longer goes before all others of its priority.",
)
@click.option(
    "--overdue-per-device",
    type=click.IntRange(0),
    default=int(DEFAULTS.overdue_per_device_s),
    metavar="SECONDS",
    show_default=True,
    help="The same for each device of the gang, if that is longer.",
)
@click.option(
    "--whole-for",
    type=click.IntRange(0),
    default=int(DEFAULTS.whole_for_s),
    metavar="SECONDS",
    show_default=True,
    help="A gang waits so long for a node or rack that holds it whole before it is cut.",
)
@suspension_options
@led_options("gangline-system")
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


def policy_of(options: Mapping[str, Any]) -> Policy:
    """Return the policy that the options ask for; queues are read from the cluster."""
    return Policy(
        levels=tuple(level.label for level in parse_levels(options["levels"])) or DEFAULT_LEVELS,
        overdue_after_s=options["overdue_after"],
        overdue_per_device_s=options["overdue_per_device"],
        whole_for_s=options["whole_for"],
        suspension=suspension_bounds(options),
        may_preempt=options["preempt"],
        may_backfill=options["backfill"],
    )


async def _serve(kubeconfig: Path | None, context: str | None, options: dict[str, Any]) -> None:
    from gangline.cli.serve.cluster import run_until_stopped
    from gangline.kube.client import Client
    from gangline.scheduler.explained.published import DEFAULT_NAMES
    from gangline.scheduler.service import SchedulerOptions, SchedulerService

    service = SchedulerOptions(
        names=tuple(options["names"]) or DEFAULT_NAMES[:1],
        policy=policy_of(options),
        node_selector=options["node_selector"],
        **led_values(options),
    )
    collect_rarely()
    async with Client(service_connection(kubeconfig, context), user_agent="gangline-scheduler") as client:
        await run_until_stopped(SchedulerService(client, service).run())
