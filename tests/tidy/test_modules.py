"""Modules as a graph: who imports whom, what a package offers, how many files a folder has.

In scope: what import contracts cannot say (test_imports.py): circles of files, surfaces, homonyms. Out of
scope: sizes and names of single files (test_tree.py).
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"

FILES_MAX = 25  # of Python in one folder: what a reader takes in at one look

# Folders with more, and how many they have. The lists of this file may only shrink.
LARGER_FOLDERS: dict[str, int] = {}

OF_USERS = {"Client": ["gangline.client.sync_client", "gangline.kube.client"]}
"""Names that users import as ``gangline.NAME``, which an inner class has too."""

# What the rest of src/ imports of a library behind its ``__all__``: constants and readers that no user of the
# library needs.
OPEN_NAMES: dict[str, set[str]] = {
    "placement": {
        "filters.holds",
        "filters.is_tolerated",
        "filters.matches_node",
        "allocations.Allocations",
        "allocations.gang_key",
        "amounts.PODS",
        "explanation.NO_ROOM",
        "explanation.explain_gang",
        "explanation.in_one_line",
        "explanation.nearest_fixes",
        "fit.fewest",
        "groups.collect.collect_gangs",
        "groups.collect.leaves",
        "groups.read_groups.composite_key",
        "groups.read_groups.read_composite",
        "groups.read_groups.read_group",
        "groups.read_groups.read_queue",
        "groups.read_groups.read_workload",
        "place.place",
        "gangs.REPLICA_SLASHES",
        "affinity.namespaces.labels_of",
        "policy.DEFAULT_QUEUE",
        "prediction.STEP_S",
        "prediction.masks_of",
        "snapshot.BY_WIRES",
        "snapshot.BY_WIRES_TAINT",
        "snapshot.HELD_TAINT",
        "snapshot.HOSTNAME_LABEL",
        "snapshot.JOB_NAME_LABELS",
        "snapshot.job_and_role",
        "snapshot.MODE_LABEL",
        "snapshot.OWN_TAINTS",
        "snapshot.given_gpus",
        "snapshot.unknown_mode",
        "claims.volumes.read_claim",
        "claims.volumes.read_class",
        "claims.volumes.read_volume",
        "waiting.why.with_simulated",
    },
    "topology": {
        "annotation.ANNOTATION",
        "gpu_choices.TABLE_MAX",
        "known.aliases_of",
        "known.near_names",
        "links.legend",
        "network.CLIQUE_LABEL",
        "network.DEFAULT_LEVELS",
        "network.NETWORK_LABEL",
        "network.on_network",
        "rates.QUOTED_OVERLAP",
        "rings.pair_matrix",
        "step_time.BYTES_FP32",
        "step_time.PARAMETERS",
    },
    "train": {
        "checkpoint_log.CheckpointLogs",
        "metrics.exposition",  # of a record, for the page of a whole cluster
        "progress.ProgressReport",
        "data.sampling.locate",
        "data.sampling.mount_of",
        "data.sampling.rank_samples",
        "environment.tf_roles",
        "rank_processes.RANKS_OF",
        "rank_watch.*",
        "records.RecordFilter",
        "records.parse_record",
        "rendezvous.interface_towards",
    },
}


@cache
def modules() -> dict[str, Path]:
    """Every module of src/ by its dotted name."""
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that are imported while the program runs, wherever the statement stands."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known:
                    yield full
                elif node.module in known:
                    yield node.module
        yield from imports_of(node, known)


@cache
def graph() -> dict[str, frozenset[str]]:
    """Which module imports which, also inside functions; not for type checking alone."""
    known = modules()
    return {
        name: frozenset(imports_of(ast.parse(path.read_text()), known)) - {name}
        for name, path in known.items()
    }


def circles(arrows: dict[str, frozenset[str]]) -> list[list[str]]:
    """Return what is left when modules that import nothing of the rest are taken away, again and again.

    Example:
        >>> circles({"a": frozenset({"b"}), "b": frozenset({"a"}), "c": frozenset({"a"}), "d": frozenset()})
        [['a', 'b']]
    """
    reach: dict[str, set[str]] = {}

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(arrows[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += arrows[name]
        return seen

    for name in arrows:
        reach[name] = reached(name)
    groups = {
        tuple(sorted(other for other in arrows if other in reach[name] and name in reach[other]))
        for name in arrows
        if name in reach[name]
    }
    return sorted(list(group) for group in groups)


def test_files_import_in_no_circle() -> None:
    assert circles(graph()) == []


def test_a_circle_is_found() -> None:
    arrows = {"a": frozenset("b"), "b": frozenset("a"), "c": frozenset("a"), "d": frozenset[str]()}

    assert circles(arrows) == [["a", "b"]]


def test_a_folder_is_taken_in_at_one_look() -> None:
    counts = Counter(path.parent.relative_to(SOURCES).as_posix() for path in modules().values())
    larger = {folder: count for folder, count in counts.items() if count > FILES_MAX}

    assert larger == LARGER_FOLDERS, "split a folder that has grown, lower the entry of one that has shrunk"


def test_public_classes_have_names_of_their_own() -> None:
    homes = defaultdict(list)
    for name, path in modules().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)

    assert {name: where for name, where in homes.items() if len(where) > 1} == OF_USERS


@pytest.mark.parametrize("package", OPEN_NAMES)
def test_a_library_is_imported_by_its_public_names(package: str) -> None:
    root = f"gangline.{package}"
    behind = {
        name.removeprefix(f"{root}.") for name in outside_imports(root) if name.rpartition(".")[0] != root
    }

    assert behind == OPEN_NAMES[package], "import what __all__ names; take out what nobody imports any more"


def outside_imports(root: str) -> Iterator[str]:
    """Yield what modules outside of a package import of it, ``root.module.name``; for types included."""
    known = modules()
    for name, path in known.items():
        if name == root or name.startswith(f"{root}."):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{root}."):
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    yield f"{full}.*" if full in known else full


@pytest.mark.parametrize("package", OPEN_NAMES)
def test_every_name_of_a_library_is_there_and_explained(package: str) -> None:
    library = import_module(f"gangline.{package}")
    if package == "train" and find_spec("torch") is None:
        names = ["PeerLostError", "Ranks", "read_ranks"]  # the others need torch
    else:
        names = library.__all__

    assert library.__all__ == sorted(set(library.__all__))
    for name in names:
        value = getattr(library, name)
        assert not isinstance(value, ModuleType), f"{name}: a module of that name hides it"
        assert value.__doc__, name


@pytest.mark.parametrize("package", OPEN_NAMES)
def test_importing_a_library_costs_nothing(package: str) -> None:
    script = f"import sys, gangline.{package}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()

    assert {"numpy", "torch", "msgspec", "asyncio"} & set(loaded) == set()
    own = {name for name in loaded if name.startswith("gangline.")}
    # train makes its process group known to torch, when torch is imported
    registers = {"gangline.train.collectives", "gangline.train.collectives.register"}
    assert own - registers == {f"gangline.{package}"}
