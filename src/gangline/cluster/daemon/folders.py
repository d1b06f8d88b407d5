"""The folders of a cluster: private ones to begin with, and what keeps them from being removed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gangline.cluster.paths import ClusterPaths
from gangline.errors import UserError

MOUNTS = Path("/proc/self/mountinfo")


def make_private_folders(paths: ClusterPaths) -> None:
    """Create the folders of a cluster with mode 0700.

    Raises:
        UserError: the folder of the sockets belongs to somebody else, who could then read them.
    """
    paths.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (paths.run.parent, paths.run):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise UserError(
                f"cannot use `{folder}` for sockets: it belongs to user {found.st_uid}",
                hint="remove it, or set XDG_RUNTIME_DIR to a folder of your own",
            )
        if found.st_mode & 0o077:
            folder.chmod(0o700)


def mounts_under(folder: Path, table: Path = MOUNTS) -> list[str]:
    """Return the mount points below a folder; removing files through one would reach the user's own."""
    try:
        points = [line.split()[4] for line in table.read_text().splitlines() if line]
    except OSError:
        return []
    return [point for point in points if point.startswith(f"{folder}/")]
