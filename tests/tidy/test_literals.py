"""Kinds, groups and names of resources are spelled in ``api/`` and ``workloads/`` alone.

What is done with a kind stands in workloads/kinds.py, so that a new kind is one entry; where a kind lives in
the API stands in api/resources.py. In scope: the commands and whatever acts on objects. Out of scope: the
server, whose tables of rules and columns are by kind, and the pure packages that write manifests.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from gangline.api import resources
from gangline.workloads import requests
from gangline.workloads.kinds import KINDS

SOURCES = Path(__file__).resolve().parents[2] / "src" / "gangline"
ACTING = [
    "cli",
    "client",
    "operator",
    "scheduler",
    "cluster/node",
    "cluster/controllers",
    "cluster/daemon",
    "cluster/images",
    "cluster/runs",
]

TABLE = [value for value in vars(resources).values() if isinstance(value, resources.Resource)]
KIND_NAMES = {resource.kind for resource in TABLE} | {kind.name for kind in KINDS}
GROUPS = {resource.group for resource in TABLE} - {""}
RESOURCE_NAMES = {*requests.WHOLE_GPUS, *requests.GPU_ALIASES, requests.RDMA}

# Literals that are left, by file. The list may only shrink.
LEFT = {
    "cli/get.py": {"Namespace"},  # a title of ours
    "cli/top/command.py": {"Namespace", "Role"},
    "client/run/program_job.py": {"kubeflow.org/v2beta1", "nvidia.com/gpu"},
}


def literals(path: Path) -> Iterator[str]:
    """Yield the texts of a file that spell a kind, a group (alone or before a slash) or a resource's name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            group = node.value.partition("/")[0]
            if node.value in KIND_NAMES | RESOURCE_NAMES or group in GROUPS:
                yield node.value


def test_kinds_groups_and_resources_come_from_their_tables() -> None:
    found = {
        path.relative_to(SOURCES).as_posix(): words
        for folder in ACTING
        for path in sorted((SOURCES / folder).rglob("*.py"))
        if (words := set(literals(path)))
    }

    assert found == LEFT, "use the tables of api/resources.py and workloads/; take out what is gone"


def test_a_literal_is_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('job = {"apiVersion": "batch/v1", "kind": "Job", "gpus": "amd.com/gpu", "text": "a Job"}')

    assert sorted(literals(file)) == ["Job", "amd.com/gpu", "batch/v1"]
