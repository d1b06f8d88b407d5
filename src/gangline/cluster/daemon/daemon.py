"""Start a daemon of the one-machine cluster, see whether it lives, and read the end of its log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gangline.cluster.paths import ClusterPaths

LOG_TAIL_LINES = 20


def spawn_daemon(paths: ClusterPaths, process: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start ``python -m gangline ARGUMENTS`` in a session of its own, with its output in its log file."""
    with paths.log(process).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gangline", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            env=daemon_environment(os.environ),
        )


def daemon_environment(environment: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """Return the environment of a daemon: the user's, without what belongs to one shell or one MPI run."""
    dropped = (
        "OMPI_",
        "PMIX_",
        "PRTE_",
        "PMI_",
        "OLDPWD",
        "PWD",
        "SHLVL",
        "PYTHONPATH",
        "PYTHONHOME",
        "COLUMNS",
    )
    kept = {name: value for name, value in environment.items() if not name.startswith(dropped)}
    return kept | {"PYTHONUNBUFFERED": "1"}


def log_tail(path: Path, lines: int = LOG_TAIL_LINES) -> list[str]:
    """Return the last lines of a log, none when there is no log."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 16384))
            return log.read().decode(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and was not reaped does not."""
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:
        return sys.platform != "linux"
