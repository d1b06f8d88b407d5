"""``gangline operator``: the job operator alone, against any Kubernetes API."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from gangline import __version__
from gangline.cli.serve.service import (
    Command,
    connection_options,
    led_options,
    led_values,
    service_connection,
)

WITHOUT_EFFECT = ("kube-api-qps", "kube-api-burst", "controller-queue-rate-limit", "controller-queue-burst")
"""Options of the MPI operator that limit rates. Requests in flight are bounded here, and rates are not."""

OF_GO_LOGS = ("alsologtostderr", "logtostderr", "stderrthreshold", "vmodule", "v")
"""Options of Go's log library, one of which the MPI operator's own Deployment sets."""

_GO_OPTION = re.compile(r"-[A-Za-z][\w-]+(=.*)?")


class _LikeGo(click.Command):
    """Takes long options behind one dash too, as programs in Go do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"-{arg}" if _GO_OPTION.fullmatch(arg) else arg for arg in args])


def _with_unused(function: Command) -> Command:
    for name in WITHOUT_EFFECT:
        function = click.option(f"--{name}", type=float, hidden=True)(function)
    for name in OF_GO_LOGS:
        dashes = "-" if len(name) == 1 else "--"
        function = click.option(f"{dashes}{name}", is_flag=False, flag_value="", hidden=True)(function)
    return function


@click.command("operator", cls=_LikeGo)
@connection_options("--kubeConfig")
@click.option(
    "--namespace",
    default="",
    envvar="KUBEFLOW_NAMESPACE",
    metavar="NAME",
    help="Look at this namespace alone.  [default: all; KUBEFLOW_NAMESPACE]",
)
@click.option(
    "--workers",
    "--threadiness",
    type=click.IntRange(1),
    default=16,
    metavar="N",
    show_default=True,
    help="Jobs that are worked on at the same time.",
)
@click.option(
    "--gang-scheduling",
    default="",
    metavar="NAME",
    help="Write PodGroups: kubernetes (its own), volcano, or the name of a scheduler that reads those of "
    "scheduler-plugins.",
)
@click.option(
    "--cluster-domain",
    default="",
    metavar="DOMAIN",
    help="Appended to host names, for example cluster.local.",
)
@click.option(
    "--remote-shell",
    is_flag=True,
    help="Pods need no ssh server, as on the one-machine cluster; jobs of old versions run.",
)
@click.option(
    "--status-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Take from pods of TrainJobs how far they are, over TLS.  [default: no port]",
)
@click.option(
    "--status-host",
    default="localhost",
    metavar="NAME",
    show_default=True,
    help="Name by which pods reach that port: of the Service before it.",
)
@led_options("mpi-operator", "--monitoring-port")
@_with_unused
@click.option("--master", default="", metavar="URL", help="API server, in place of the kubeconfig's.")
@click.version_option(__version__, "--version", message="gangline %(version)s")
def command(kubeconfig: Path | None, context: str | None, **options: Any) -> None:
    """Run the job operator against a cluster until SIGTERM: it makes the pods of MPIJobs."""
    for name in WITHOUT_EFFECT:
        if options.pop(name.replace("-", "_")) is not None:
            click.echo(f"warning: --{name} has no effect: rates are not limited here", err=True)
    for name in OF_GO_LOGS:
        if options.pop(name) is not None:
            click.echo(f"warning: -{name} has no effect: the log goes to standard error as it is", err=True)
    if image := os.environ.get("GANGLINE_IMAGE"):
        click.echo(f"image {image} is served on this machine by Gangline's own operator", err=True)
    asyncio.run(_serve(kubeconfig, context, options))


async def _serve(kubeconfig: Path | None, context: str | None, options: dict[str, Any]) -> None:
    from gangline.cli.serve.cluster import run_until_stopped
    from gangline.cli.serve.operator_status import listening
    from gangline.jobs.remote_access import AGENT_PROGRAMS
    from gangline.jobs.settings import Settings
    from gangline.kube.client import Client
    from gangline.launch.pods.programs import source_of
    from gangline.operator.service import OperatorOptions, OperatorService

    led, endpoint = led_values(options), None
    connection = service_connection(kubeconfig, context)
    if options["master"]:
        connection = replace(connection, server=options["master"])
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(connection, user_agent="gangline-operator"))
        if port := options["status_port"]:
            desk = listening(client, led["lock_namespace"], led["address"], port, options["status_host"])
            endpoint = await stack.enter_async_context(desk)
        service = OperatorOptions(
            namespace=options["namespace"],
            settings=Settings(
                cluster_domain=options["cluster_domain"],
                gang_scheduling=options["gang_scheduling"],
                has_remote_shell=options["remote_shell"],
                status_endpoint=endpoint,
                agent_programs=tuple((name, source_of(name)) for name in AGENT_PROGRAMS),
            ),
            workers=options["workers"],
            **led,
        )
        await run_until_stopped(OperatorService(client, service).run())
