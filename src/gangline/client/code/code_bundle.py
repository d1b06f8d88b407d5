"""The user's code as a bundle: a folder -> one deterministic, compressed, content-addressed archive.

What `.gitignore` and `.ganglineignore` of the folder and of those below it leave is packed; `.git` never is.
The same files give the same bytes: names in order, times and owners zeroed, permissions
reduced to executable or not.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from pathspec import GitIgnoreSpec

from gangline.errors import UserError

MAX_ARCHIVE_BYTES = 8 * 1024 * 1024
"""Compressed. Secrets and ConfigMaps are in etcd, which holds some GiB for a whole cluster."""
MAX_PACKED_BYTES = 512 * 1024 * 1024
"""Before compression: reading ends here, so that a folder of data sets is refused soon."""
CHUNK_BYTES = 675 * 1024
"""Of one object: 900 KiB once base64 has made 4 characters of 3 bytes; Kubernetes takes 1 MiB of data."""
IGNORE_FILES = (".gitignore", ".ganglineignore")
LARGEST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class CodeBundle:
    """An archive (`tar.gz`), its address, the SHA-256 of its bytes in hexadecimal, and what is in it."""

    archive: bytes
    digest: str
    paths: frozenset[PurePosixPath] = frozenset()

    def chunks(self) -> list[bytes]:
        """Return the archive in pieces of at most `CHUNK_BYTES`, each for one object, in order."""
        return [self.archive[at : at + CHUNK_BYTES] for at in range(0, len(self.archive), CHUNK_BYTES)]


def pack_folder(folder: Path, added: Mapping[str, bytes] = MappingProxyType({})) -> CodeBundle:
    """Return the bundle of `folder`, and of files that are `added` to it by their paths in it.

    Raises UserError for what is no folder, a symbolic link that leaves it, and more than the bounds.
    """
    if not folder.is_dir():
        raise UserError(f"cannot bundle {folder}: it is not a folder", hint="name one with --code DIR")
    sizes: Counter[str] = Counter()
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        paths = list(_left_by_ignore_files(folder))
        for path in paths:
            sizes[_top(path)] += (folder / path).lstat().st_size
        if sizes.total() > MAX_PACKED_BYTES:
            raise _too_large(folder, f"{_mib(sizes.total())} before compression", MAX_PACKED_BYTES, sizes)
        for path in paths:
            _add(archive, folder, path)
        for name, content in sorted(added.items()):
            sizes[_top(PurePosixPath(name))] += len(content)
            paths.append(PurePosixPath(name))
            _add_content(archive, tarfile.TarInfo(name), content)
    if len(packed.getvalue()) > MAX_ARCHIVE_BYTES:
        raise _too_large(folder, f"{_mib(len(packed.getvalue()))} compressed", MAX_ARCHIVE_BYTES, sizes)
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    return CodeBundle(packed.getvalue(), digest, frozenset(paths))


def _left_by_ignore_files(folder: Path) -> Iterator[PurePosixPath]:
    """Yield files and symbolic links below `folder` that no ignore file names, in order of name."""
    specs: dict[PurePosixPath, GitIgnoreSpec] = {}
    for root, folders, files in os.walk(folder):
        here = PurePosixPath(Path(root).relative_to(folder).as_posix())
        lines = [line for name in IGNORE_FILES if name in files for line in _lines(Path(root, name))]
        specs[here] = GitIgnoreSpec.from_lines(lines)
        links = [name for name in folders if Path(root, name).is_symlink()]
        folders[:] = sorted(
            name
            for name in folders
            if name not in (".git", *links) and not _ignored(here / name, specs, folder=True)
        )
        for name in sorted([*files, *links]):
            if not _ignored(here / name, specs, folder=False):
                yield here / name


def _ignored(path: PurePosixPath, specs: dict[PurePosixPath, GitIgnoreSpec], *, folder: bool) -> bool:
    for above in path.parents:  # the nearest ignore file that says anything decides, as in git
        said = specs[above].check_file(path.relative_to(above).as_posix() + ("/" if folder else "")).include
        if said is not None:
            return said
    return False


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def _add(archive: tarfile.TarFile, folder: Path, path: PurePosixPath) -> None:
    here = folder / path
    state = here.lstat()
    entry = tarfile.TarInfo(path.as_posix())
    if stat.S_ISLNK(state.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, here.readlink().as_posix()
        written = PurePosixPath(os.path.normpath(path.parent / entry.linkname))  # as it reads in a pod
        led_to = Path(os.path.realpath(here))  # links on the way followed, loops too
        if written.is_absolute() or ".." in written.parts or not led_to.is_relative_to(folder.resolve()):
            raise UserError(
                f"cannot bundle {folder}: the symbolic link {path} leads out of it, to {entry.linkname}",
                hint=f"copy what it leads to, or write /{path} into .ganglineignore",
            )
        archive.addfile(entry)
    elif stat.S_ISREG(state.st_mode):
        entry.mode = 0o755 if state.st_mode & stat.S_IXUSR else 0o644
        _add_content(archive, entry, here.read_bytes())


def _add_content(archive: tarfile.TarFile, entry: tarfile.TarInfo, content: bytes) -> None:
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _top(path: PurePosixPath) -> str:
    return f"{path.parts[0]}/" if len(path.parts) > 1 else path.parts[0]


def _mib(size: int) -> str:
    return f"{size / 1024 / 1024:.1f} MiB"


def _too_large(folder: Path, size: str, most: int, sizes: Counter[str]) -> UserError:
    largest = ", ".join(f"{name} ({_mib(size)})" for name, size in sizes.most_common(LARGEST_SHOWN))
    return UserError(
        f"cannot bundle {folder}: {size}, a bundle has at most {_mib(most)}; the largest in it: {largest}",
        hint="write what the program does not need into .ganglineignore, or name a volume claim that has the "
        "code (`--code-claim NAME:/path`)",
    )
