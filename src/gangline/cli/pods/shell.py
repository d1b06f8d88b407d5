"""``gangline shell``: a shell in a running pod of a job."""

from __future__ import annotations

import asyncio
import sys

import click

from gangline.cli.pods.exec import run_in_pod
from gangline.cli.pods.job_pod import pod_options
from gangline.client.jobs.beside_rank import SHELL
from gangline.client.target import ClusterTarget


@click.command("shell")
@click.option("-c", "--container", default="", metavar="NAME", help="One container of the pod.")
@pod_options
def command(
    name: str, container: str, rank: int | None, instance: str | None, kind: str, target: ClusterTarget
) -> int:
    """Open a shell in the launcher's pod of job NAME, or beside a rank.

    It sees what the program sees: files, variables, GPUs, network. The job goes on meanwhile.
    """
    shell = run_in_pod(
        target,
        name,
        kind,
        SHELL,
        container,
        has_input=True,
        tty=sys.stdin.isatty(),
        rank=rank,
        instance=instance,
    )
    return asyncio.run(shell)
