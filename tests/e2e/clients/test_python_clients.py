"""Python clients of others, unmodified: each program here does what its client is used for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.clients

CLIENTS = (
    *("kr8s", "lightkube", "pykube", "kopf", "kubernetes"),
    *("kubeflow_training", "kubeflow_training_functions", "kubeflow_trainer"),
)
PROGRAMS = Path(__file__).with_name("programs")


TORCHRUN = """#!/bin/sh
# Stands in for torch's own, which is not here: one process that is told its place.
RANK=$PET_NODE_RANK WORLD_SIZE=$PET_NNODES exec python3 "$@"
"""


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    torch = tmp_path_factory.mktemp("torch")
    (torch / "bin").mkdir()
    (torch / "bin" / "torchrun").write_text(TORCHRUN)
    (torch / "bin" / "torchrun").chmod(0o755)
    with start_cluster("--image", f"pytorch/pytorch={torch}") as started:
        yield started


@pytest.mark.parametrize("client", [*CLIENTS])
def test_a_program_written_with_the_client_runs(cluster: Any, clients_python: str, client: str) -> None:
    done = cluster.run(clients_python, str(PROGRAMS / f"with_{client}.py"))

    assert done.returncode == 0, done.stderr
