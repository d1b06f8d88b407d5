"""``start-slave-multi.sh`` of NetApp's article: a worker prints its port and serves a remote shell.

It never completes by itself. In a pod of the one-machine cluster the pod serves the remote shell, whatever
the port; with Gangline's secret in the environment its own remote shell is served, else OpenSSH's server.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.bench import entry
from gangline.bench.entry import say
from gangline.bench.netapp_run import PODS_VARIABLE
from gangline.errors import ClusterError, UserError
from gangline.launch.shell_server import ADDRESS_VARIABLE, KEY_CHARACTERS_MIN, KEY_VARIABLE, serve

SSHD_FOLDERS = "/usr/sbin:/usr/local/sbin:/sbin"


def main(words: Sequence[str]) -> None:
    """Serve at the port that the command line names.

    Raises:
        UserError: no port, or neither secret nor ssh server.
        ClusterError: the port is taken.
    """
    if len(words) != 1 or not words[0].isdigit() or not 0 < int(words[0]) < 65536:
        raise UserError("usage: start-slave-multi.sh PORT")
    key = os.environ.get(KEY_VARIABLE, "")
    if os.environ.get(PODS_VARIABLE) and not key:
        say(words[0])
        wait_for_end()
    if key:
        if len(key) < KEY_CHARACTERS_MIN:
            raise UserError(
                f"{KEY_VARIABLE} has {len(key)} characters; at least {KEY_CHARACTERS_MIN} are needed"
            )
        say(words[0])
        try:
            serve(int(words[0]), key, os.environ.get(ADDRESS_VARIABLE, ""))
        except OSError as error:
            raise ClusterError(f"cannot serve a remote shell at port {words[0]}: {error.strerror}") from error
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{SSHD_FOLDERS}")
    if sshd is None:
        raise UserError(
            f"cannot serve a remote shell: {KEY_VARIABLE} is not set, and there is no sshd",
            hint=f"give {KEY_VARIABLE} the same value on all nodes, or install openssh-server",
        )
    say(words[0])
    options = os.environ.get("GANGLINE_SSHD_OPTIONS", "").split()
    os.execv(sshd, [sshd, "-D", "-e", "-p", words[0], *options])


def wait_for_end() -> None:
    """Wait until the process is told to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    while True:
        signal.pause()


if __name__ == "__main__":
    entry.run(main)
