"""How a host is reached: a remote shell's command line, and which hosts are this machine.

A program that runs there is sent over the shell's standard input, so nothing has to be installed on the host
beside Python, and no variable of the user stands in its list of processes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SSH = "ssh"
_AGENT_VARIABLES = (
    "PRTE_MCA_plm_ssh_agent",
    "OMPI_MCA_plm_rsh_agent",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)
_PYTHON = (
    'for p in {own} python3 python; do command -v "$p" >/dev/null 2>&1 && exec "$p" -I -S -c {code}; done'
)
_NO_PYTHON = "echo gangline: no python3 on this host >&2; exit 127"
EXIT_NO_PYTHON = 127
_READ_PROGRAM = (
    "import os\nb = b''\nwhile len(b) < {length}:\n  c = os.read(0, {length} - len(b))\n"
    "  if not c: raise SystemExit(1)\n  b += c\nexec(compile(b, 'gangline', 'exec'))"
)


@dataclass(frozen=True, slots=True)
class RemoteShell:
    """The program that runs commands on other hosts, and its options.

    Attributes:
        program: ``ssh`` or one that takes the same arguments.
        port: 0 for its own default.
        identity: file with the private key, empty for its own default.
        check_host_keys: let the user's ssh settings decide about unknown hosts; else all are taken.
        connect_timeout_s: bound for the connection alone.
    """

    program: str = SSH
    port: int = 0
    identity: str = ""
    check_host_keys: bool = True
    connect_timeout_s: int = 3

    @property
    def is_ssh(self) -> bool:
        """Whether the options of OpenSSH may be used."""
        return Path(self.program).name == SSH

    def options(self) -> list[str]:
        """Return the options without host and command; passwords are never asked for."""
        words: list[str] = []
        if self.is_ssh:
            words += ["-x", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={self.connect_timeout_s}"]
            words += ["-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"]
            if not self.check_host_keys:
                words += ["-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"]
        words += ["-p", str(self.port)] if self.port else []
        words += ["-i", self.identity] if self.identity else []
        return words

    def python_line(self, host: str, length: int, python: str) -> list[str]:
        """Return the line that runs a Python program of ``length`` bytes, sent first on standard input.

        Args:
            host: a name for the remote shell; empty runs it on this machine.
            length: bytes of the program.
            python: tried before ``python3`` and ``python`` of the host's own PATH.
        """
        code = _READ_PROGRAM.format(length=length)
        if not host:
            return [python, "-I", "-S", "-c", code]
        script = _PYTHON.format(own=shlex.quote(python), code=shlex.quote(code))
        words = f"exec /bin/sh -c {shlex.quote(f'{script}; {_NO_PYTHON}')}"
        return [self.program, *self.options(), host, words]


def find_remote_shell(environment: Mapping[str, str], port: int = 0, identity: str = "") -> RemoteShell:
    """Return the remote shell that the MPI launchers of this environment would use, ``ssh`` by default."""
    for name in _AGENT_VARIABLES:
        program = environment.get(name, "").split(":")[0].strip()
        if program and shutil.which(program, path=environment.get("PATH")):
            return RemoteShell(program, port, identity)
    return RemoteShell(SSH, port, identity)


def is_this_host(name: str) -> bool:
    """Tell whether a host's name or address is this machine's; a name that does not resolve is not."""
    if name in ("localhost", "127.0.0.1", "::1", socket.gethostname(), os.uname().nodename):
        return True
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(name, None)}
    except OSError:
        return False
    return any(_is_own_address(address) for address in found)


def _is_own_address(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))  # only an address of this machine can be bound
    except OSError:
        return False
    return True
