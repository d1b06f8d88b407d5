"""``gangline version``: what is installed, for people and for bug reports."""

from __future__ import annotations

import platform
import sys

import click

from gangline import __version__


@click.command("version")
def command() -> None:
    """Show the versions of Gangline, Python and the MPI that jobs would use."""
    from gangline.launch.mpi import MpiNotFoundError, find_mpi

    print(f"gangline {__version__}")
    print(f"python   {platform.python_version()} ({sys.executable})")
    print(f"system   {platform.system()} {platform.release()} {platform.machine()}")
    try:
        mpi = find_mpi()
    except MpiNotFoundError as error:
        print(f"mpi      none: {error.message}")
    else:
        print(f"mpi      {mpi.title} ({mpi.bin})")
