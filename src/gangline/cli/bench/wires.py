"""``gangline bench wires``: all-reduces over sets of a node's GPUs and to a second node, kept on the node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from gangline.cli.options.target import target_options
from gangline.cli.output import Column, print_table, print_value
from gangline.client.target import ClusterTarget
from gangline.errors import UserError
from gangline.units import plural

if TYPE_CHECKING:
    from gangline.topology import WireRates

MIB = 1 << 20
RANKS_MAX = 64


@click.command("wires", short_help="measure all-reduces over sets of a node's GPUs, and to a second node")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE [SECOND]")
@click.option("--all", "every", is_flag=True, help="Measure every set, not one of each kind.")
@click.option("--ranks", type=click.IntRange(2, RANKS_MAX), help="On a node without GPUs.  [default: 2]")
@click.option(
    "--size-mib",
    type=click.IntRange(1, 4096),
    default=64,
    show_default=True,
    metavar="MIB",
    help="Size of one rank's tensor.",
)
@click.option("--image", default="", help="On a cluster: image with torch, or mpi4py.")
@click.option("--python", default="", metavar="FILE", help="Here: a Python with torch.  [default: this one]")
@click.option("--scheduler", default="", metavar="NAME", help="On a cluster: scheduler of the pods.")
@click.option("--timeout", type=float, default=600, show_default=True, metavar="S", help="End by then.")
@click.option("--no-write", is_flag=True, help="Leave the node as it is.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), default=None, help="Print JSON or YAML.")
@target_options()
def wires(
    nodes: tuple[str, ...],
    every: bool,
    ranks: int | None,
    size_mib: int,
    image: str,
    python: str,
    scheduler: str,
    timeout: float,
    no_write: bool,
    output: str | None,
    target: ClusterTarget,
) -> None:
    """Measure what the wires of NODE carry, and those to a SECOND node, and keep it for predictions.

    A pod takes all GPUs of the node and all-reduces a large tensor over sets of them: by nccl on GPUs; by
    gloo or MPI between processes where there is none, also where GPUs are simulated. The rates are written
    on the node (annotation `gangline.dev/wire-rates`), each beside what the model predicted.
    """
    from gangline.client.wires.measure import WireQuestion, measure_wires

    if len(nodes) > 2 or len(set(nodes)) < len(nodes):
        raise UserError(f"wires are measured on one node, or from it to another (found `{' '.join(nodes)}`)")
    if not target.is_local and not image:
        raise UserError("the pods need an image with torch or mpi4py", hint="--image IMAGE")
    asked = WireQuestion(
        nodes, every, ranks, size_mib * MIB, image, python, scheduler, timeout, is_kept=not no_write
    )
    rates, is_written = asyncio.run(measure_wires(target, asked))
    if output:
        import msgspec

        print_value({"node": nodes[0], "written": is_written, **msgspec.to_builtins(rates)}, output)
        return
    _print(nodes, rates, is_written)


def _print(nodes: tuple[str, ...], rates: WireRates, is_written: bool) -> None:
    count = max((len(one.gpus) for one in rates.sets), default=0)
    print(f"{nodes[0]}: bus GB/s of an all-reduce of {rates.size_bytes // MIB} MiB by {rates.way}\n")
    rows = [_row(" ".join(map(str, one.gpus)), one.measured, one.predicted) for one in rates.sets]
    if rates.network is not None:
        both = f"{len(rates.network.gpus)} here, {len(rates.network.gpus)} on {nodes[1]}"
        rows.append(_row(both, rates.network.measured, rates.network.predicted))
    what = "GPUS" if is_written or any(one.predicted for one in rates.sets) else "RANKS"
    print_table([Column(head) for head in (what, "MEASURED", "PREDICTED", "SHARE")], rows)
    kept = f"kept on node {nodes[0]}: `gangline explain --placement` predicts with them"
    print(f"\n{plural(len(rates.sets), 'set')} of up to {count}; {kept if is_written else 'not kept'}")


def _row(what: str, measured: float, predicted: float) -> list[str]:
    if not predicted:
        return [what, f"{measured:.2f}", "-", "-"]
    return [what, f"{measured:.2f}", f"{predicted:.2f}", f"{measured / predicted:.0%}"]
