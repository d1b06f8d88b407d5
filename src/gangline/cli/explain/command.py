"""``gangline explain``: why a job waits and what would help; where it was placed and what that is worth."""

from __future__ import annotations

import asyncio

import click
from msgspec.structs import replace

from gangline.cli.explain.text import print_past, print_placement, print_report
from gangline.cli.jobs.job_names import complete_job_name
from gangline.cli.options.target import target_options
from gangline.cli.output import print_value
from gangline.client.target import ClusterTarget


@click.command("explain")
@click.argument("name", shell_complete=complete_job_name)
@click.option("--placement", is_flag=True, help="Show the ring, its scarcest link, and better or worse ones.")
@click.option(
    "--model",
    default="vgg16",
    metavar="NAME",
    help="Model whose training is predicted, by its gradients.  [default: vgg16]",
)
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0.001),
    metavar="MS",
    help="Time of its step on one GPU alone; known for resnet50 and vgg16 on a V100.",
)
@click.option(
    "--levels",
    default="",
    metavar="LABEL[:FACTOR],...",
    help="Node labels of the network's levels, the widest first, and their oversubscription.  "
    "[default: the scheduler's own]",
)
@click.option(
    "--scheduler-namespace",
    default="",
    metavar="NAME",
    help="Namespace of the scheduler's Lease, where it has another.  [default: that of its installation]",
)
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), default=None, help="Print JSON or YAML.")
@target_options()
def command(
    name: str,
    placement: bool,
    model: str,
    step_ms: float | None,
    levels: str,
    scheduler_namespace: str,
    output: str | None,
    target: ClusterTarget,
) -> None:
    """Say why job NAME waits: the first reason, what is short, and what would help.

    NAME is that of a job, a pod or a PodGroup; `KIND/NAME` means one kind.
    """
    from gangline.client.explain.explanation import explain_job
    from gangline.client.explain.workload import read_workload
    from gangline.kube.deep_json import collector_paused

    workload = read_workload(model, step_ms, levels)
    target = replace(target, scheduler_namespace=scheduler_namespace)
    with collector_paused():  # of a hundred thousand objects that are read none is garbage: 15 of 26 s
        value = asyncio.run(explain_job(target, name, workload, placement=placement))
    if output:
        print_value(value, output)
        return
    if "began" in value:
        print_past(value, name, target.options)
        return
    print_report(value)
    if placement:
        print_placement(value["placement"])
