"""The SELinux labels by which containers may use GPUs, and which of them files of this machine have.

Source: OpenShift's guide to GPUs, whose table answers "permission denied" in a container.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

WANTED = (
    ("/dev/nvidia*", "xserver_misc_device_t"),
    ("/usr/bin/nvidia-*", "xserver_exec_t"),
    ("/var/lib/kubelet/*/*", "container_file_t"),
)
"""Which files need which type; each line is a pattern of paths."""
_ENFORCE = "sys/fs/selinux/enforce"
"""There while SELinux is on; 1 while it enforces."""
_ATTRIBUTE = "security.selinux"


class LabelledFile(NamedTuple):
    """One file, or one pattern that no file matches: then ``found`` is None."""

    path: str
    wanted: str
    found: str | None

    @property
    def is_wrong(self) -> bool:
        """Whether the file is there with another type than it needs."""
        return self.found is not None and self.found != self.wanted


def is_on(root: Path = Path("/")) -> bool:
    """Return whether the machine under ``root`` has SELinux switched on."""
    return (root / _ENFORCE).exists()


def type_of(path: Path) -> str:
    """Return the type in a file's label, empty without one.

    Example: ``system_u:object_r:container_file_t:s0`` has the type ``container_file_t``.
    """
    try:
        label = os.getxattr(path, _ATTRIBUTE).decode(errors="replace").rstrip("\0")
    except OSError:
        return ""
    return [*label.split(":"), "", "", ""][2]


def labelled_files(
    root: Path = Path("/"), type_of: Callable[[Path], str] = type_of
) -> Iterator[LabelledFile]:
    """Yield every file of the table, in its order."""
    for pattern, wanted in WANTED:
        paths = sorted(root.glob(pattern.lstrip("/")))
        if not paths:
            yield LabelledFile(pattern, wanted, None)
        for path in paths:
            yield LabelledFile(f"/{path.relative_to(root)}", wanted, type_of(path))
