"""What containers wrote to places that go with their pod, if it is worth a word: much of it, or a checkpoint.

A walk through the writable layers and the private file systems of containers that have ended, bounded in
entries and time. What was asked for as a volume is none of these places.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gangline.cluster.node.shim import syscalls

LARGE_BYTES = 100_000_000
"""Below one top folder: so much is more than caches and logs of a usual program."""
ENTRIES_MAX = 50_000
TIME_MAX_S = 1.0
"""For one pod; 50,000 entries take 0.2 s."""
FOLDERS_MAX = 8
"""Told of at most, the largest first."""

_SCRATCH = ("/tmp", "/var/tmp", "/run", "$TMPDIR")
"""Here only checkpoints count: everybody knows that the rest does not stay."""
_OF_THE_SYSTEM = ("/dev", "/proc", "/sys")
_INSTALLED = frozenset(("site-packages", "dist-packages", "node_modules", "__pycache__"))
"""Folders of programs, whose files look like checkpoints at times (tests of torch, weights of fonts)."""

# Examples: m.pt, model.safetensors, weights.h5, variables.data-00000-of-00001, events.out.tfevents.17.host
_CHECKPOINT_FILE = re.compile(
    r"\.(pt|pth|ckpt|safetensors|onnx|h5|hdf5|keras|npz|distcp|gguf|msgpack)$"
    r"|\.ckpt(-\d+)?\.|\.data-\d+-of-\d+$|^events\.out\.tfevents\."
)
# Examples: checkpoint-500/optimizer.bin, ckpt_3/, global_step100/
_CHECKPOINT_FOLDER = re.compile(r"^(checkpoint|ckpt|global_step|step)s?[-_]?\d*$", re.IGNORECASE)
_WEIGHTS_FILE = re.compile(r"\.(bin|npy|pkl)$")
_WEIGHTS_BYTES_MIN = 1_000_000

File = tuple[str, int]
"""Path as the container saw it, and size in bytes."""


def is_checkpoint(path: str, size: int) -> bool:
    """Return whether a file looks like saved work. Pure.

    Example:
        >>> is_checkpoint("/results/epoch-3.pt", 400), is_checkpoint("/results/log.txt", 400)
        (True, False)
    """
    folders, _, name = path.rpartition("/")
    parts = folders.split("/")
    if size == 0 or not _INSTALLED.isdisjoint(parts):
        return False
    if _CHECKPOINT_FILE.search(name) or any(map(_CHECKPOINT_FOLDER.match, parts)):
        return True
    return size >= _WEIGHTS_BYTES_MIN and _WEIGHTS_FILE.search(name) is not None


def find_worth_telling(files: Iterable[File]) -> list[dict[str, Any]]:
    """Return ``{"path", "bytes"}`` for each top folder that is worth a word, the largest first. Pure.

    ``path`` is the folder that all files in question share, or the file where there is one.
    """
    groups: dict[str, list[File]] = {}
    for path, size in files:
        top = next((one for one in _SCRATCH if path.startswith(f"{one}/")), "/".join(path.split("/", 2)[:2]))
        groups.setdefault(top, []).append((path, size))
    found: list[tuple[int, str]] = []
    for top, members in groups.items():
        if top in _SCRATCH or sum(size for _, size in members) < LARGE_BYTES:
            members = [file for file in members if is_checkpoint(*file)]
        members = [file for file in members if file[1]]
        if members:
            paths = [path for path, _ in members]
            folders = [path.rpartition("/")[0] or "/" for path in paths]
            shared = paths[0] if len(paths) == 1 else os.path.commonpath(folders)
            found.append((sum(size for _, size in members), shared))
    found.sort(reverse=True)
    return [{"path": path, "bytes": size} for size, path in found[:FOLDERS_MAX]]


class Walk:
    """Walks below several places with one budget; ``is_cut`` when it did not suffice."""

    def __init__(self) -> None:
        self._left = ENTRIES_MAX
        self._deadline = time.monotonic() + TIME_MAX_S
        self.is_cut = False

    def files(self, place: str, shown: str) -> Iterator[File]:
        """Yield the regular files below a folder, of its file system; ``shown`` stands for its path."""
        try:
            device = os.lstat(place).st_dev
        except OSError:
            return
        folders = [(place, shown.rstrip("/"))]
        while folders:
            folder, name = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if self._is_spent():
                            return
                        found = entry.stat(follow_symlinks=False)
                        path = f"{name}/{entry.name}"
                        if stat.S_ISDIR(found.st_mode) and found.st_dev == device:
                            folders.append((entry.path, path))
                        elif stat.S_ISREG(found.st_mode):
                            # Not what a file with holes in it seems to have.
                            yield path, min(found.st_size, found.st_blocks * 512)
            except OSError:
                continue  # it has just gone, or is not ours to read

    def _is_spent(self) -> bool:
        self._left -= 1
        self.is_cut = self.is_cut or self._left < 0 or time.monotonic() > self._deadline
        return self.is_cut


class EndedContainer(NamedTuple):
    """A container to look through.

    Attributes:
        name: of the container.
        root: how its root was made, see ``rootfs.enter_root``; None when it has the machine's.
        mount_namespace: descriptor of the namespace in which its private file systems live on, or None.
    """

    name: str
    root: dict[str, Any] | None
    mount_namespace: int | None


def look(pod_folder: str, containers: Sequence[EndedContainer]) -> dict[str, Any]:
    """Return ``{"folders": find_worth_telling(...), "is_cut": bool}`` for containers of a pod.

    The calling process moves into the namespaces of the containers, so it should have nothing else to do.
    """
    walk = Walk()
    files: list[File] = []
    for place, shown in layer_places(pod_folder, [one.name for one in containers]):
        files += walk.files(place, shown)
    for one in containers:
        if one.mount_namespace is not None and one.root is not None:
            syscalls.setns(one.mount_namespace, syscalls.CLONE_NEWNS)
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
            for place in private_places(mounts, {mount["target"] for mount in one.root["mounts"]}):
                files += walk.files(place, place)
    return {"folders": find_worth_telling(files), "is_cut": walk.is_cut}


def private_places(mounts: str, volumes: Container[str]) -> list[str]:
    """Return the folders of a container that lie in memory: they go with its namespace. Pure.

    Args:
        mounts: text of ``/proc/self/mountinfo`` in the namespace, see proc(5).
        volumes: where volumes are mounted; some of them lie in memory too.
    """
    found = []
    for line in mounts.splitlines():
        own, _, other = line.partition(" - ")
        place, options = own.split(" ")[4:6]
        is_writable = "rw" in options.split(",")
        if other.startswith("tmpfs ") and is_writable and not place.startswith(_OF_THE_SYSTEM):
            found.append(place.replace("\\040", " "))
    return [place for place in dict.fromkeys(found) if place not in volumes]


def layer_places(pod_folder: str, containers: Iterable[str]) -> list[tuple[str, str]]:
    """Return the writable layers of containers on the machine: folder, and path in the container.

    Without containers of their own files (isolation ``plain``) those are HOME and TMPDIR of the pod.
    """
    places = []
    for container in containers:
        upper = Path(pod_folder, "containers", container, "upper")
        for layer in sorted(upper.iterdir()) if upper.is_dir() else []:
            shown = "/" if layer.name == "root" else f"/{layer.name.removeprefix('over-')}"
            places.append((str(layer), shown))
    own = (("home", "~"), ("tmp", "$TMPDIR"))
    places += [(str(Path(pod_folder, name)), shown) for name, shown in own]
    return [(place, shown) for place, shown in places if Path(place).is_dir()]
