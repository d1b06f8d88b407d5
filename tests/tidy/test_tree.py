"""The shape of the tree: sizes, names, and what every folder must have.

In scope: rules about files that a reader notices. Out of scope: what ruff and mypy check already; the import
arrows (test_imports.py).
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = REPOSITORY / "src" / "gangline"

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60  # without its docstring: a screen

# Larger ones, with the size they have. The lists may only shrink: an entry that fits, or is smaller than
# noted here, must be taken out or lowered. Never add one for new code: split it.
LARGER_FILES: dict[str, int] = {}
LARGER_FUNCTIONS: dict[str, int] = {}

BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "base", "misc"}

# Places of one machine or one network that must not slip into the project.
FOREIGN_TEXT = [
    re.compile(pattern)
    for pattern in (
        r"(?<![\w.])/work" + r"/",
        r"/root/\.(?!ssh)",
        r"/home/(?!USER|you\b|user\b|mpiuser\b|benchmarks\b)\w+/",
        r"--(extra-)?index-url",
        r"https?://[\w.-]+(:\d+)?/(simple|pypi)/",
    )
]


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file of the repository that exists, without what git ignores."""
    command = ["git", "-C", str(REPOSITORY), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout")
    return tuple(path for name in listed if (path := REPOSITORY / name).is_file())


def python_files(*folders: str) -> Iterator[tuple[str, Path]]:
    for path in tracked_files():
        name = path.relative_to(REPOSITORY).as_posix()
        if path.suffix == ".py" and name.startswith(folders):
            yield name, path


def function_sizes(name: str, path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first, *_ = node.body
            documented = ast.get_docstring(node) is not None
            docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
            yield f"{name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1 - docstring


def ratchet(sizes: dict[str, int], noted: dict[str, int], limit: int) -> list[str]:
    """Return what is wrong: too large and not noted, larger than noted, or noted and smaller by now."""
    problems = [
        f"{name} has {size} lines, the limit is {noted.get(name, limit)}: split it"
        for name, size in sizes.items()
        if size > noted.get(name, limit)
    ]
    for name, size in noted.items():
        actual = sizes.get(name, 0)
        if actual <= limit:
            problems.append(f"{name} fits by now: take it out of the list")
        elif actual < size:
            problems.append(f"{name} has {actual} lines by now: lower its entry from {size}")
    return problems


def test_files_keep_within_their_size() -> None:
    sizes = {
        name: len(path.read_text().splitlines())
        for name, path in python_files("src/", "horovod/", "tests/", "benchmarks/", "examples/")
    }

    assert ratchet(sizes, LARGER_FILES, FILE_LINES_MAX) == []


def test_functions_fit_a_screen() -> None:
    sizes: dict[str, int] = {}
    for name, path in python_files("src/", "horovod/"):
        for function, size in function_sizes(name, path):
            sizes[function] = max(size, sizes.get(function, 0))

    assert ratchet(sizes, LARGER_FUNCTIONS, FUNCTION_LINES_MAX) == []


def test_the_lists_may_only_shrink() -> None:
    assert ratchet({"a": 70}, {}, 60) == ["a has 70 lines, the limit is 60: split it"]
    assert ratchet({"a": 71}, {"a": 70}, 60) == ["a has 71 lines, the limit is 70: split it"]
    assert ratchet({"a": 65}, {"a": 70}, 60) == ["a has 65 lines by now: lower its entry from 70"]
    assert ratchet({"a": 60}, {"a": 70}, 60) == ["a fits by now: take it out of the list"]
    assert ratchet({"a": 70}, {"a": 70}, 60) == []


def test_names_tell_what_is_inside() -> None:
    parts = {
        part.removesuffix(".py"): name
        for name, _ in python_files("src/", "tests/", "benchmarks/", "examples/")
        for part in name.split("/")
    }

    assert {part: name for part, name in parts.items() if part in BANNED_NAMES} == {}


def test_only_the_command_line_prints() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, path in python_files("src/")
        if not name.startswith(("src/gangline/cli/", "src/gangline/bench/"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]

    assert found == []


def test_every_module_says_what_it_is_for() -> None:
    missing = [
        name
        for name, path in python_files("src/", "benchmarks/", "examples/")
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]

    assert missing == []


def example_folders() -> list[Path]:
    return sorted(path for path in (REPOSITORY / "examples").iterdir() if re.match(r"\d\d-", path.name))


@pytest.mark.parametrize("folder", example_folders(), ids=lambda path: path.name)
def test_every_example_has_a_readme_and_a_test(folder: Path) -> None:
    readme = folder / "README.md"
    test = REPOSITORY / "tests" / "e2e" / "examples" / f"test_{folder.name.replace('-', '_')}.py"

    assert readme.is_file()
    assert test.is_file()
    assert folder.name in (REPOSITORY / "examples" / "README.md").read_text()


def test_the_commands_of_the_readme_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    commands = re.findall(r"^make ([a-z-]+)", (REPOSITORY / "README.md").read_text(), re.MULTILINE)

    assert commands[:2] == ["run", "test"]
    assert set(commands) <= targets
    assert {"run", "test", "test-train", "lint", "types", "bench", "wheel"} <= targets


def test_continuous_integration_calls_the_command_of_the_readme() -> None:
    text = (REPOSITORY / ".ci" / "run").read_text()

    want = ["test", "test-properties", "test-hostile", "test-mpi", "test-kubernetes", "test-train"]
    want += ["test-horovod", "docs", "test-page", "test-containers", "test-clients", "test-nodes"]
    # stage make test-train; fi
    calls = re.findall(r"\b(?:stage|timeout .*) make (\S+?)(?=[;\s]|$)", text, re.MULTILINE)
    assert list(dict.fromkeys(calls)) == want


def test_the_licence_is_present() -> None:
    assert "Apache License" in (REPOSITORY / "LICENSE").read_text()[:200]
    assert "CC BY 4.0" in (REPOSITORY / "examples" / "01-digits" / "README.md").read_text()


def test_nothing_names_a_place_of_one_machine() -> None:
    found = []
    for path in tracked_files():
        if path == Path(__file__) or b"\0" in (content := path.read_bytes()):
            continue
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
            if any(pattern.search(line) for pattern in FOREIGN_TEXT):
                found.append(f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:80]}")

    assert found == []
