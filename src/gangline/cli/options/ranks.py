"""How many ranks and where, in the words of mpirun, torchrun and Horovod: for ``run`` and ``launch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.launch.hosts import Host

F = TypeVar("F", bound=Callable[..., Any])


def rank_options(*, help_text: str) -> Callable[[F], F]:
    """Add ``-n/-np/--ranks`` and ``--nproc-per-node``, passed on as ``ranks`` and ``per_node``."""

    def decorate(function: F) -> F:
        per_node = click.option(
            "--nproc-per-node",
            "--nproc_per_node",
            "per_node",
            type=click.IntRange(min=1),
            metavar="K",
            help="Ranks on each node or host, as torchrun says it.",
        )
        ranks = click.option("-n", "-np", "--ranks", "ranks", type=int, metavar="N", help=help_text)
        return ranks(per_node(function))

    return decorate


def ranks_and_nodes(ranks: int | None, per_node: int | None, nodes: int | None) -> tuple[int, int]:
    """Return how many ranks in all run on how many nodes; what is not said is 1.

    Raises:
        UserError: the numbers contradict each other.
    """
    if per_node is None:
        return ranks if ranks is not None else 1, nodes if nodes is not None else 1
    if nodes is None:
        nodes = max(1, (ranks or 0) // per_node)
    if ranks is not None and ranks != per_node * nodes:
        raise UserError(
            f"-n {ranks} contradicts --nproc-per-node {per_node}, which on {nodes} "
            f"{'node' if nodes == 1 else 'nodes'} is {per_node * nodes} in all",
            hint="leave one of them out",
        )
    return per_node * nodes, nodes


def places_of_hosts(
    hosts: Sequence[Host], ranks: int | None, per_node: int | None
) -> tuple[list[Host], int | None]:
    """Return the hosts with the slots that ``--nproc-per-node`` gives them, and the number of ranks.

    A host written without slots, which then has one, takes as many as are asked for.

    Raises:
        UserError: a host has fewer slots, or the numbers contradict each other.
    """
    if per_node is None:
        return list(hosts), ranks
    for host in hosts:
        if 1 < host.slots < per_node:
            raise UserError(
                f"--nproc-per-node {per_node}, but host `{host.name}` has {host.slots} slots",
                hint=f"write `{host.name}:{per_node}`, or leave one of them out",
            )
    count, _ = ranks_and_nodes(ranks, per_node, len(hosts))
    return [replace(host, slots=per_node) for host in hosts], count


def gpus_of_each(gpus: int | None, per_rank: int | None, ranks: int | None, nodes: int) -> int:
    """Return how many GPUs each rank gets for itself, 0 for none asked.

    Args:
        gpus: of all ranks together, as ``--gpus`` says.
        per_rank: of each, as ``--gpus-per-rank`` says.
        ranks: in all; None where the user does not say.
        nodes: on which they run.

    Raises:
        UserError: it can be read in two ways, or cannot be shared evenly; with both ways on.
    """
    if gpus is None:
        return per_rank or 0
    if per_rank is not None:
        raise UserError("--gpus and --gpus-per-rank exclude each other", hint="leave one of them out")
    if gpus < 1:
        raise UserError(f"--gpus must be at least 1 (found `{gpus}`)")
    if nodes > 1:
        raise UserError(
            f"--gpus {gpus} with {nodes} nodes can mean all GPUs or those of each node",
            hint="say how many each rank gets: --gpus-per-rank 1",
        )
    if ranks is None and gpus > 1:
        raise UserError(
            f"--gpus {gpus} without -n can mean one rank with {gpus} GPUs or {gpus} ranks with one each",
            hint=f"-n 1 --gpus {gpus}, or -n {gpus} --gpus {gpus}",
        )
    each, rest = divmod(gpus, ranks or 1)
    if rest:
        raise UserError(
            f"--gpus {gpus} cannot be shared evenly by {ranks} ranks",
            hint=f"-n {gpus} gives each rank one; --gpus-per-rank K gives each K",
        )
    return each
