"""``gangline bench``: make data sets, measure scaling, draw results."""

from __future__ import annotations

import os

import click

from gangline.errors import UserError


@click.group("bench")
def command() -> None:
    """Make data for the benchmarks, measure how they scale, draw their results."""


@command.command("make-data")
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
