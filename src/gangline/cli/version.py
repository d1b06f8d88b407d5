"""``gangline version``: what is installed, for people and for bug reports."""

from __future__ import annotations

import platform
import sys

import click

from gangline import __version__
from gangline.cli.output import print_value


@click.command("version")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), default=None, help="Print JSON or YAML.")
def command(output: str | None) -> None:
    """Show the versions of Gangline, Python and the MPI that jobs would use."""
    from gangline.launch.mpi import MpiNotFoundError, find_mpi

    try:
        mpi = find_mpi()
    except MpiNotFoundError as error:
        title = f"none: {error.message}"
    else:
        title = f"{mpi.title} ({mpi.bin})"
    value = {
        "gangline": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "mpi": title,
    }
    if output:
        print_value(value, output)
        return
    print("\n".join(f"{key:8} {text}" for key, text in value.items()))
