"""``gangline bench tokens``: train a GPT on random tokens, here or on hosts, and say how many a second."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click

from gangline.errors import JobFailedError, UserError


@click.command("tokens", short_help="train a GPT on random tokens; tokens/s and share of the peak")
@click.option("-n", "--ranks", type=click.IntRange(1), default=1, show_default=True, help="Ranks in all.")
@click.option("--hosts", metavar="HOST:N,...", help="Over ssh on these.  [default: this machine]")
@click.option(
    "--model",
    type=click.Choice(["gpt2", "small"]),
    default="small",
    show_default=True,
    help="GPT-2 of 124 million parameters, or one of 5.",
)
@click.option(
    "--parallel",
    type=click.Choice(["ddp", "fsdp2"]),
    default="ddp",
    show_default=True,
    help="Average gradients, or spread the parameters.",
)
@click.option("--precision", type=click.Choice(["bf16", "fp32"]), default="bf16", show_default=True)
@click.option("--batch-size", type=click.IntRange(1), default=4, show_default=True, help="Sequences a rank.")
@click.option("--sequence", type=click.IntRange(1), help="Tokens in each.  [default: gpt2 1024, small 256]")
@click.option("--steps", type=click.IntRange(1), default=20, show_default=True, help="Steps that are timed.")
@click.option("--peak-tflops", type=float, help="Of one device in this precision.  [default: as known]")
@click.option("--python", default="", metavar="FILE", help="A Python with torch.  [default: this one]")
@click.option(
    "-o", "--output", default="tokens.json", show_default=True, metavar="FILE", help="Where the result goes."
)
def tokens(
    ranks: int,
    hosts: str | None,
    model: str,
    parallel: str,
    precision: str,
    batch_size: int,
    sequence: int | None,
    steps: int,
    peak_tflops: float | None,
    python: str,
    output: str,
) -> None:
    """Train a GPT on random tokens; print tokens/s of every rank and of all, and the share of the peak (MFU).

    The ranks are started as by `gangline launch --no-mpi`. The result says what it depends on: backend,
    versions, command line, hosts, figures of every rank.
    """
    from gangline.bench import tokens as program

    target = Path(output).absolute()
    target.unlink(missing_ok=True)
    options = {"model": model, "parallel": parallel, "precision": precision, "batch-size": batch_size}
    options |= {"steps": steps, "json": target} | ({"sequence": sequence} if sequence else {})
    options |= {"peak-tflops": peak_tflops} if peak_tflops else {}
    words = [f"--{name}={value}" for name, value in options.items()]
    where = ["--hosts", hosts] if hosts else []
    line = [sys.executable, "-m", "gangline", "launch", "--no-mpi", *where, "-n", str(ranks), "--"]
    done = subprocess.run([*line, python or sys.executable, program.__file__, *words], check=False)
    if done.returncode:
        raise JobFailedError("the benchmark failed; its words are above", exit_code=done.returncode)
    try:
        json.loads(target.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"the benchmark left no result in `{target}`", hint="rank 0 writes it: look on its host"
        ) from error
    click.echo(f"result    {output}")
