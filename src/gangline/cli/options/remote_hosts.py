"""Options of commands that reach other hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.launch.hosts import Host
    from gangline.launch.remote_host import RemoteShell

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--hosts", "-H", "hosts", metavar="A:4,B:4", help="Hosts and how many ranks each takes."),
    click.option("--hostfile", type=click.Path(), metavar="FILE", help="Read lines `HOST slots=N` instead."),
    click.option(
        "--ssh-port", "-p", type=click.IntRange(1, 65535), metavar="PORT", help="Of the remote shell."
    ),
    click.option("--ssh-identity-file", "-i", metavar="FILE", help="Private key of the remote shell."),
    click.option("--remote-shell", metavar="PROGRAM", help="Takes ssh's arguments.  [default: ssh]"),
    click.option(
        "--interface", metavar="NAME,…", help="Network interfaces that ranks use, the same on all hosts."
    ),
)


def remote_options(function: F) -> F:
    """Add ``--hosts --hostfile --ssh-port --ssh-identity-file --remote-shell --interface``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read_hosts(hosts: str | None, hostfile: str | None) -> list[Host]:
    """Return the hosts of either option; empty when neither is given.

    Raises:
        UserError: both are given, a file cannot be read, or what they say is malformed.
    """
    from gangline.launch.hosts import parse_hostfile, parse_hosts

    if hosts and hostfile:
        raise UserError("--hosts and --hostfile exclude each other")
    if hosts:
        return parse_hosts(hosts)
    if not hostfile:
        return []
    try:
        text = Path(hostfile).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read hostfile `{hostfile}`: {error}") from error
    return parse_hostfile(text, hostfile)


def read_shell(program: str | None, port: int | None, identity: str | None) -> RemoteShell:
    """Return the remote shell that the options ask for.

    Raises:
        UserError: the key's file does not exist.
    """
    import os
    from dataclasses import replace

    from gangline.launch.remote_host import find_remote_shell

    if identity and not Path(identity).expanduser().is_file():
        raise UserError(f"--ssh-identity-file `{identity}` is no file")
    key = str(Path(identity).expanduser().absolute()) if identity else ""
    shell = find_remote_shell(os.environ, port or 0, key)
    return replace(shell, program=program) if program else shell


def read_interfaces(text: str | None) -> list[str]:
    """Return the names of ``eth0,eth1``."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]
