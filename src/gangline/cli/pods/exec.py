"""``gangline exec``: a program in a running pod of a job."""

from __future__ import annotations

import asyncio

import click

from gangline.cli.pods.job_pod import open_pod, pod_options
from gangline.client.target import ClusterTarget
from gangline.errors import UserError


@click.command("exec")
@click.option("-c", "--container", default="", metavar="NAME", help="One container of the pod.")
@click.option("-i", "--stdin", "has_input", is_flag=True, help="Give the program this command's input.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal, and this one's input.")
@pod_options
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGUMENT...]")
def command(
    name: str,
    words: tuple[str, ...],
    container: str,
    has_input: bool,
    tty: bool,
    rank: int | None,
    instance: str | None,
    kind: str,
    target: ClusterTarget,
) -> int:
    """Run a program in the launcher's pod of job NAME, or beside a rank: in its pod, folder and variables.

    The exit code is the program's.
    """
    run = run_in_pod(
        target,
        name,
        kind,
        words,
        container,
        has_input=has_input or tty,
        tty=tty,
        rank=rank,
        instance=instance,
    )
    return asyncio.run(run)


async def run_in_pod(
    target: ClusterTarget,
    name: str,
    kind: str,
    words: tuple[str, ...],
    container: str,
    *,
    has_input: bool,
    tty: bool,
    rank: int | None,
    instance: str | None,
) -> int:
    """Run a program in the pod that is meant; return its exit code.

    Raises:
        UserError: there is no such pod, or a terminal is asked for where none is.
        ApiError: the program cannot be executed, or the server refuses.
    """
    import sys

    from gangline.cli.pods.terminal import carry
    from gangline.client.jobs.beside_rank import beside_rank
    from gangline.kube.pod_streams.program import PodProgram

    if tty and not sys.stdin.isatty():
        raise UserError("-t needs a terminal, and standard input is none", hint="-i gives the input alone")
    async with open_pod(target, name, kind, instance=instance, rank=rank) as pod:
        program = await PodProgram.run(
            pod.client,
            pod.name,
            pod.namespace,
            words if rank is None else beside_rank(rank, words),
            container=container or pod.container,
            stdin=has_input,
            tty=tty,
        )
        return await carry(program, has_input=has_input, tty=tty)
