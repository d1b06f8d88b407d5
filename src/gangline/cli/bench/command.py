"""``gangline bench``: make data sets, measure scaling, draw results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.bench.tokens import tokens
from gangline.cli.bench.wires import wires
from gangline.cli.subcommands import Subcommands
from gangline.errors import EXIT_INTERRUPTED, UserError
from gangline.units import plural

if TYPE_CHECKING:
    from gangline.bench.scaling import Series

HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
DELETE_LIMIT_S = 30.0
"""How long a run that was interrupted is waited for."""


@click.group("bench", cls=Subcommands)
def command() -> None:
    """Make data for the benchmarks, measure how they scale and what wires carry, draw results."""


command.add_command(tokens)
command.add_command(wires)


@command.command("make-data", short_help="write labelled JPEG images in ImageNet's form")
@click.option("--images", type=int, default=20_000, show_default=True, help="How many images in all.")
@click.option(
    "--mounts",
    required=True,
    metavar="FOLDER,...",
    help="Folders for the shards; the shards are striped over them.",
)
@click.option("--shards", type=int, help="Number of files.  [default: one for 1024 images]")
@click.option("--classes", type=int, default=1000, show_default=True, help="Labels are 1 to this.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed is another data set.")
@click.option("--workers", type=int, help="Processes that draw.  [default: one for each core]")
def make_data(
    images: int, mounts: str, shards: int | None, classes: int, seed: int, workers: int | None
) -> None:
    """Write labelled JPEG images in ImageNet's form (TFRecord): about 110 KB each, generated."""
    from gangline.bench.make_data import DataPlan, default_shards
    from gangline.bench.make_data import make_data as make

    _require("PIL", "pillow", "train")
    folders = tuple(part.strip() for part in mounts.split(",") if part.strip())
    count = default_shards(max(1, images), folders or ("",)) if shards is None else shards
    plan = DataPlan(images, folders, count, classes, seed)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def done(written: int, size: int) -> None:
        click.echo(f"{written}/{plan.shards} shards, {size / 1e6:,.1f} MB", err=True)

    size = make(plan, workers=max(1, min(workers or cores, plan.shards)), done=done)
    click.echo(f"{images:,} images, {size / 1e6:,.1f} MB, in {plan.shards} shards in {', '.join(folders)}")


def _require(module: str, package: str, extra: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise UserError(f"this needs {package}", hint=f"pip install 'gangline[{extra}]'")


@command.command("scaling", short_help="train on 1, 2, 4 … ranks of this machine, and draw images/s")
@click.option("--ranks", default="1,2,4", show_default=True, help="Numbers of ranks to measure.")
@click.option("--model", default="resnet18", show_default=True, help="Network, as of tf_cnn_benchmarks.")
@click.option("--batch-size", type=int, default=8, show_default=True, help="Images for each rank and step.")
@click.option("--num-batches", type=int, default=20, show_default=True, help="Steps that are timed.")
@click.option("--python", default="", metavar="FILE", help="A Python with torch.  [default: this one]")
@click.option("-o", "--output", default="scaling", show_default=True, help="Folder for results and figures.")
def scaling(ranks: str, model: str, batch_size: int, num_batches: int, python: str, output: str) -> None:
    """Train on 1, 2, 4 … ranks of this machine; print and draw images/s beside the ideal.

    The one-machine cluster is started if it is not up, and stays up as after `gangline run`.
    """
    from gangline.bench.models import find
    from gangline.bench.scaling import series_of, table_lines
    from gangline.cli.output import say
    from gangline.client.run.gpus import GpuOptions
    from gangline.client.run.start import start_cluster
    from gangline.client.target import ClusterTarget
    from gangline.cluster.daemon.cluster import Cluster

    counts = _counts(ranks)
    find(model)
    start_cluster(Cluster(ClusterTarget().paths), 1, GpuOptions(), say)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for count in counts:
        target = folder / f"{model}-{count}-ranks.json"
        flags = [f"--model={model}", f"--batch_size={batch_size}", f"--num_batches={num_batches}"]
        _measure(count, python or sys.executable, [*flags, "--variable_update=horovod"], target)
        results.append(json.loads(target.read_text(encoding="utf-8")))
        click.echo(f"{plural(count, 'rank')}: {results[-1]['images_per_s']:,.1f} images/s")
    series = series_of(results, [str(folder)] * len(results))
    for line in series:
        click.echo("\n" + "\n".join(table_lines(line)))
    cores = results[0]["machine"]["cores"]
    if results[0]["device"] == "cpu" and max(counts) > 1:
        click.echo(f"\nAll ranks share the {cores} cores of one machine, so the ideal is out of reach here.")
    _draw(series, folder / model, f"{model}: images/s by number of ranks")


@command.command("plot", short_help="draw results of several machines")
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option("-o", "--output", default="images-per-second.png", show_default=True, help="File to draw.")
@click.option("--title", default="", help="Text above the figure.")
def plot(results: tuple[str, ...], output: str, title: str) -> None:
    """Draw results of several machines: files that the benchmarks wrote with --json.

    Results of one machine, network, batch and precision make one line. Written are a PNG and an SVG.
    """
    from gangline.bench.scaling import series_of, table_lines

    series = series_of([_read(name) for name in results], results)
    click.echo("\n\n".join("\n".join(table_lines(line)) for line in series))
    _require("matplotlib", "matplotlib", "plot")
    _draw(series, Path(output), title)


def _counts(text: str) -> list[int]:
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = []
    if not counts or counts[0] < 1:
        raise UserError(f"--ranks must be numbers above 0 with commas between them (found `{text}`)")
    return counts


def _measure(ranks: int, python: str, flags: list[str], target: Path) -> None:
    """Run the benchmark on so many ranks of the one-machine cluster; its result comes into the file.

    Raises:
        UserError: the run failed.
    """
    from gangline.bench import tf_cnn_benchmarks

    target.unlink(missing_ok=True)
    program = [python, str(Path(tf_cnn_benchmarks.__file__)), *flags, f"--json={target.name}"]
    line = [sys.executable, "-m", "gangline", "run", "-n", str(ranks), "--", *program]
    code, said = _follow(line, target.parent)
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if code != 0 or not target.exists():
        if subprocess.run([python, "-c", HAS_TORCH], check=False).returncode == 1:
            raise UserError(f"{python} has no torch", hint="name a Python that has it: --python FILE")
        tail = "\n".join(said.splitlines()[-12:])
        raise UserError(f"the benchmark on {plural(ranks, 'rank')} ended with code {code}:\n{tail}")


def _follow(line: list[str], folder: Path) -> tuple[int, str]:
    """Return the exit code and the output of a run.

    Ctrl-C reaches the run too, which deletes its job: it is waited for.
    """
    with subprocess.Popen(
        line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as run:
        try:
            said, _ = run.communicate()
        except KeyboardInterrupt:
            click.echo("interrupted: deleting the job", err=True)
            with suppress(subprocess.TimeoutExpired):
                run.communicate(timeout=DELETE_LIMIT_S)
            return EXIT_INTERRUPTED, ""
    return run.returncode, said


def _read(name: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the result `{name}`: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"the result `{name}` is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserError(
            f"{name} is no result of a benchmark", hint="the benchmarks write one with --json FILE"
        )
    return found


def _draw(series: list[Series], target: Path, title: str) -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        click.echo("not drawn: this needs matplotlib; pip install 'gangline[plot]'", err=True)
        return
    from gangline.bench.plots import draw

    try:
        paths = draw(series, target, title=title)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}") from error
    click.echo("\ndrawn: " + ", ".join(map(str, paths)))
