"""``gangline launch``: start ranks on hosts over ssh, without Kubernetes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from gangline.cli.options.elastic import ElasticWords, elastic_options, read_elastic
from gangline.cli.options.ranks import places_of_hosts, rank_options
from gangline.cli.options.remote_hosts import read_hosts, read_interfaces, read_shell, remote_options
from gangline.cli.output import say
from gangline.errors import UserError


@click.command("launch", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@remote_options
@rank_options(help_text="Ranks in all.  [default: one for each slot]")
@click.option("--gpus", "--gpus-per-rank", "gpus", type=int, hidden=True)
@click.option("--mpi/--no-mpi", "use_mpi", default=True, help="Use the MPI that is found, or none.")
@click.option("--check/--no-check", default=True, help="Ask the hosts before the start.")
@click.option(
    "--start-timeout", type=float, default=30.0, metavar="S", help="All ranks run by then.  [default: 30]"
)
@click.option("--wdir", metavar="FOLDER", help="Where ranks start, on every host.  [default: this folder]")
@click.option(
    "--log-dir",
    "--output-filename",
    "log_dir",
    metavar="FOLDER",
    help="Write each rank's output here too, in a folder of its own.",
)
@elastic_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def command(
    hosts: str | None,
    hostfile: str | None,
    ssh_port: int | None,
    ssh_identity_file: str | None,
    remote_shell: str | None,
    interface: str | None,
    ranks: int | None,
    per_node: int | None,
    gpus: int | None,
    use_mpi: bool,
    check: bool,
    start_timeout: float,
    wdir: str | None,
    log_dir: str | None,
    command: tuple[str, ...],
    **elastic_words: Any,
) -> None:
    """Run COMMAND as ranks on hosts that you reach over ssh, without Kubernetes.

    The hosts are asked first, all at once. With an MPI on this machine `mpirun` starts the ranks, else
    Gangline does. Every rank finds its place in the variables that torch, MPI and Horovod programs read. When
    one rank fails, or this command ends in whatever way, all ranks are ended.

    With --min-ranks, --host-discovery-script or --rendezvous the number of ranks may change while they train:
    those of a script that calls `gangline.train.run_elastic`, or of Horovod's `@hvd.elastic.run`. Gangline
    starts them then, without MPI.

    \b
    gangline launch --hosts node-1:4,node-2:4 -- python train.py
    """  # noqa: D301 - click's mark for text that is not filled
    from gangline.launch.hosts import Host, plan_ranks
    from gangline.launch.plain_hosts import Launch, run_launch
    from gangline.launch.rank_start import StartOptions

    if gpus is not None:
        raise UserError(
            "`gangline launch` hands out no GPUs: a rank sees all of its host, and takes that of LOCAL_RANK",
            hint=f"leave it out; --nproc-per-node {max(1, gpus)} starts so many ranks on each host",
        )
    words, has_hosts = ElasticWords(**elastic_words), bool(hosts or hostfile)
    elastic = read_elastic(words, os.environ, ranks=ranks, per_node=per_node, has_hosts=has_hosts)
    slots = elastic.discovered_slots if elastic and elastic.rendezvous else per_node or ranks or 1
    found = read_hosts(hosts, hostfile) or [Host("localhost", max(1, slots))]
    found, ranks = places_of_hosts(found, None if elastic else ranks, per_node)
    if start_timeout <= 0:
        raise UserError(f"--start-timeout {start_timeout:g} is no time; give seconds above 0")
    folder = Path(log_dir) if log_dir else None
    options = StartOptions(
        shell=read_shell(remote_shell, ssh_port, ssh_identity_file),
        command=command,
        environment=os.environ,
        cwd=wdir or str(Path.cwd()),
        interfaces=read_interfaces(interface),
        start_timeout_s=start_timeout,
    )
    if elastic is not None:
        from gangline.launch.elastic.elastic_start import run_elastic

        run_elastic([] if elastic.discovery else found, options, elastic, folder, say)
        return
    places = plan_ranks(found, sum(host.slots for host in found) if ranks is None else ranks)
    run_launch(Launch(places, options, use_mpi, check, output_folder=folder), say)
