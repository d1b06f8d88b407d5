"""``gangline topology``: what the links between the GPUs of a machine carry, without any cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.output import Column, print_table, print_value
from gangline.cli.subcommands import Subcommands
from gangline.errors import UserError
from gangline.units import plural

if TYPE_CHECKING:
    from gangline.topology import Machine

FILE_BYTES_MAX = 1 << 20
LARGE_BYTES = 1 << 32
"""Of an all-reduce in which latency counts for nothing."""

output_option = click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), default=None, help="Print JSON or YAML."
)


class _Machines(Subcommands):
    """Takes the name of a machine, or a file, for `show` of it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command, else a machine."""
        from pathlib import Path

        from gangline.topology import machine_of_name
        from gangline.topology.known import near_names

        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            if machine_of_name(name) is not None or Path(name).is_file():
                args = ["show", *args]
            elif near := near_names(name):
                raise UserError(
                    f"no command and no known machine is called `{name}`", hint=f"did you mean {near}?"
                )
        return super().resolve_command(ctx, args)


@click.group("topology", cls=_Machines)
def command() -> None:
    """Show the links between the GPUs of a machine and what they carry, by the model that places gangs."""


@command.command("list", short_help="list the known machines and their names")
@output_option
def list_machines(output: str | None) -> None:
    """List the known machines, and the other names that `show` and `--gpu-model` take for them."""
    from gangline.topology import known_names
    from gangline.topology.known import aliases_of

    if output:
        rows = [
            {"name": name, "title": title, "aliases": list(aliases_of(name))}
            for name, title in known_names().items()
        ]
        print_value(rows, output)
        return
    columns = (Column("NAME"), Column("MACHINE", least=20), Column("ALSO CALLED", least=20, rank=1))
    print_table(columns, [(name, what, ", ".join(aliases_of(name))) for name, what in known_names().items()])


@command.command("show", short_help="show a machine's links, its best sets of GPUs and their bandwidth")
@click.argument("source", metavar="MODEL|FILE")
@click.option(
    "--gpu-model",
    default="",
    metavar="NAME",
    help="The GPUs' product name, for a print of `nvidia-smi topo -m`, which does not tell it.",
)
@output_option
def show(source: str, gpu_model: str, output: str | None) -> None:
    """Show a machine: its matrix, and for every number of GPUs the best set and what it carries.

    MODEL is a known machine (`gangline topology list`). FILE, or `-` for standard input, holds the output of
    `nvidia-smi topo -m`, the value of the annotation `gangline.dev/gpu-topology`, or a node as JSON. With
    `-o json` the bandwidth of every set of GPUs is printed.
    """
    machine, title = _machine(source, gpu_model)
    if output:
        print_value(_value(machine), output)
        return
    _print(machine, title)


def _machine(source: str, gpu_model: str) -> tuple[Machine, str]:
    """Return the machine and a line that says what it is."""
    from pathlib import Path

    from gangline.topology import known_machine, known_names, machine_of_name

    if source != "-" and not Path(source).is_file():
        if machine_of_name(source) is None and ("/" in source or "." in Path(source).suffix):
            raise UserError(f"there is no file `{source}`", hint="known machines: gangline topology list")
        machine = known_machine(source)
        return machine, known_names()[machine.model]
    text = _read(source)
    name = "standard input" if source == "-" else source
    if not text.lstrip().startswith("{"):
        from gangline.topology import read_smi

        return read_smi(text, model=gpu_model or "unknown GPUs", source=name), f"from {name}"
    return _from_json(text, name)


def _from_json(text: str, name: str) -> tuple[Machine, str]:
    import json

    from gangline.topology import RATES_ANNOTATION, read_annotation, with_rates
    from gangline.topology.annotation import ANNOTATION

    try:
        value = json.loads(text)
    except ValueError as error:
        raise UserError(f"{name} cannot be read as JSON: {error}") from None
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        node = metadata.get("name", name)
        notes = metadata.get("annotations") or {}
        text = notes.get(ANNOTATION) or ""
        if not text:
            raise UserError(
                f"node `{node}` has no annotation `{ANNOTATION}`",
                hint="the node agent and the device plugin write it on nodes with GPUs",
            )
        found = read_annotation(text, node=node, rates=notes.get(RATES_ANNOTATION, ""))
        if found.rates is None:
            return found.machine, f"node {node}, {found.source}"
        machine = with_rates(found.machine, found.rates, found.indices)
        return machine, f"node {node}, {found.source}, rates measured ({found.rates.way})"
    found = read_annotation(text)
    return found.machine, f"from {name}, {found.source}"


def _read(source: str) -> str:
    import sys
    from pathlib import Path

    if source == "-":
        data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        with Path(source).open("rb") as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise UserError(f"`{source}` has more than {FILE_BYTES_MAX >> 20} MiB; that is no matrix of links")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UserError(f"`{source}` is no text") from None


@dataclass(frozen=True, slots=True)
class _Best:
    """The best set of one size.

    Attributes:
        gpus: their indices, in the order in which ranks should follow.
        bus_gb_s: bus bandwidth of a large all-reduce.
        ring_gb_s: that of rings alone.
        lowest_gb_s: bus bandwidth of the lowest indices, which a stock plugin hands out.
        worst_gb_s: of the worst set; ``None`` where not every set was looked at.
        way: ``3 rings`` or ``chain``.
        bottleneck: the scarcest wire.
    """

    gpus: tuple[int, ...]
    bus_gb_s: float
    ring_gb_s: float
    lowest_gb_s: float
    worst_gb_s: float | None
    way: str
    bottleneck: str


def _best(machine: Machine, count: int) -> _Best:
    from itertools import combinations

    from gangline.topology import best_chain, best_rings, choices, mask_of, rank_order
    from gangline.topology.gpu_choices import TABLE_MAX

    table = choices(machine)
    mask = table.best(machine.everything, count)
    rings = best_rings(machine, mask)
    by_rings = table.bus_gb_s(mask) <= rings.gb_s
    every = range(machine.count)
    return _Best(
        gpus=rank_order(machine, mask),
        bus_gb_s=table.bus_gb_s(mask),
        ring_gb_s=rings.gb_s,
        lowest_gb_s=table.bus_gb_s(table.lowest(machine.everything, count)),
        worst_gb_s=min(table.bus_gb_s(mask_of(some)) for some in combinations(every, count))
        if machine.count <= TABLE_MAX
        else None,
        way=plural(len(rings.orders), "ring") if by_rings else "chain",
        bottleneck=rings.bottleneck if by_rings else best_chain(machine, mask).bottleneck,
    )


def _print(machine: Machine, title: str) -> None:
    gpu = machine.gpu
    nvlinks = (
        f"{gpu.nvlink_count} {gpu.links} of {gpu.nvlink_gb_s:g} GB/s" if gpu.nvlink_count else "no NVLink"
    )
    print(f"{machine.model}: {title}")
    print(f"{machine.count} x {gpu.kind}, {nvlinks}, PCIe {gpu.pcie}")
    if machine.guess:
        print(machine.guess)
    cards = f" over {machine.cards} cards" if machine.cards > 1 else ""
    flow = f", {machine.flow_gbit_s:g} a connection" if machine.flow_gbit_s else ""
    network = f"{machine.network_gbit_s:g} Gbit/s{cards}{flow}"
    print(f"CPUs taken as {machine.host.name}, network as {network}\n")
    from gangline.topology import Part, all_reduce
    from gangline.topology.links import legend

    columns = [Column(""), *(Column(str(index)) for index in range(machine.count)), Column("NUMA")]
    rows = [
        [str(index), *(name if name != "X" else "-" for name in row), str(machine.numa[index])]
        for index, row in enumerate(machine.links)
    ]
    print_table(columns, rows)
    if text := legend(machine.links, gpu.links):
        print(f"\n{text}")
    if machine.count < 2:
        return
    if machine.nvswitch_links:
        reduced = all_reduce([Part(machine, machine.everything)], LARGE_BYTES)
        rings = _best(machine, machine.count).ring_gb_s
        print(f"\nPredicted bus bandwidth of a large collective over any of them: {rings:.1f} GB/s by rings")
        if reduced.algorithm == "nvls":
            print(f"An all-reduce over all of them, added up in the switch: {reduced.bus_gb_s:.1f} GB/s")
        print("All go through the NVSwitch, so no set is faster; those on one NUMA node are taken first.")
        return
    print("\nPredicted bus bandwidth of a large all-reduce, GB/s, by number of GPUs:\n")
    heads = ("GPUS", "BEST SET", "BEST", "LOWEST IDS", "WORST", "BY", "BOTTLENECK")
    print_table([Column(head) for head in heads], [_row(machine, n) for n in range(2, machine.count + 1)])


def _row(machine: Machine, count: int) -> list[str]:
    best = _best(machine, count)
    worst = "" if best.worst_gb_s is None else f"{best.worst_gb_s:.1f}"
    order = " ".join(map(str, best.gpus))
    rates = [f"{best.bus_gb_s:.1f}", f"{best.lowest_gb_s:.1f}", worst]
    return [str(count), order, *rates, best.way, best.bottleneck]


def _value(machine: Machine) -> dict[str, Any]:
    """Return the machine and all predictions as JSON."""
    from gangline.topology import best_rings, bus_gb_s, mask_of, members
    from gangline.topology.gpu_choices import TABLE_MAX

    best = [(count, _best(machine, count)) for count in range(2, machine.count + 1)]
    masks = range(1 << machine.count) if machine.count <= TABLE_MAX else ()
    return {
        "model": machine.model,
        "gpu": machine.gpu.kind,
        "numa": list(machine.numa),
        "links": [list(row) for row in machine.links],
        "networkGbitPerSecond": machine.network_gbit_s,
        "networkCards": machine.cards,
        "connectionGbitPerSecond": machine.flow_gbit_s,
        "assumed": machine.guess or None,
        "best": [
            {
                "count": count,
                "gpus": list(found.gpus),
                "busGBPerSecond": round(found.bus_gb_s, 3),
                "ringGBPerSecond": round(found.ring_gb_s, 3),
                "lowestIdsBusGBPerSecond": round(found.lowest_gb_s, 3),
                "rings": [list(order) for order in best_rings(machine, mask_of(found.gpus)).orders],
                "by": found.way,
                "bottleneck": found.bottleneck,
            }
            for count, found in best
        ],
        "sets": [
            {"gpus": list(members(mask)), "busGBPerSecond": round(bus_gb_s(machine, mask), 3)}
            for mask in masks
            if mask.bit_count() > 1
        ],
    }
