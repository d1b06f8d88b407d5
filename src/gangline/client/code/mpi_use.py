"""Does a program use MPI? Found out from its own files, for ranks without MPI would each be alone."""

from __future__ import annotations

import ast
from pathlib import Path

MPI_PACKAGES = frozenset({"mpi4py", "horovod", "mpi4jax", "dolfinx"})
"""Packages whose ranks find each other through MPI when a launcher starts them."""
FILES_MAX = 500
BINARY_BYTES_MAX = 256 << 20
_LIBRARIES = (b"libmpi.so", b"libmpich.so", b"libmpi_cxx.so", b"libmpifort.so", b"libmpicxx.so")


def uses_mpi(program: tuple[str, ...], folder: Path) -> bool:
    """Return whether the program's script, or what it imports of the folder, imports MPI; or its binary does.

    Args:
        program: words as the user typed them.
        folder: the code; what is not in it counts as no MPI's.
    """
    script = _script(program, folder)
    if script is None:
        return False
    if script.suffix != ".py":
        return _is_linked(script)
    seen: set[Path] = set()
    left = [script]
    while left and len(seen) < FILES_MAX:
        file = left.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _imports(file):
            if name.partition(".")[0] in MPI_PACKAGES:
                return True
            left += _files_of(name, (file.parent, folder))
    return False


def _script(program: tuple[str, ...], folder: Path) -> Path | None:
    if not program[0].rpartition("/")[2].startswith("python"):
        return _inside(folder, program[0])
    words = list(program[1:])
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "-m" and words:
            return next(iter(_files_of(words[0], (folder,), main=True)), None)
        if option in ("-W", "-X") and words:
            words.pop(0)
    return _inside(folder, words[0]) if words else None


def _inside(folder: Path, name: str) -> Path | None:
    path = folder / name
    return path if "/" in name or name.endswith(".py") or path.is_file() else None


def _imports(file: Path) -> list[str]:
    """Return the names that a file imports anywhere; of relative ones what follows the dots."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module] if node.module else []
            found += [".".join(filter(None, (node.module, alias.name))) for alias in node.names]
    return found


def _files_of(name: str, folders: tuple[Path, ...], *, main: bool = False) -> list[Path]:
    """Return the files of a module and of the packages around it, as far as they are in a folder."""
    parts = name.split(".")
    found = []
    for folder in folders:
        for count in range(len(parts), 0, -1):
            path = folder.joinpath(*parts[:count])
            names = [path / "__main__.py"] if main else []
            found += [one for one in (*names, path.with_suffix(".py"), path / "__init__.py") if one.is_file()]
    return found


def _is_linked(binary: Path) -> bool:
    try:
        if binary.stat().st_size > BINARY_BYTES_MAX:
            return False
        data = binary.read_bytes()
    except OSError:
        return False
    return data.startswith(b"\x7fELF") and any(library in data for library in _LIBRARIES)
