"""Python clients of others, unmodified: each program here does what its client is used for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.clients

CLIENTS = (
    *("kr8s", "lightkube", "pykube", "kopf", "kubernetes"),
    *("kubeflow_training", "kubeflow_training_functions"),
)
PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster() as started:
        yield started


@pytest.mark.parametrize("client", [*CLIENTS])
def test_a_program_written_with_the_client_runs(cluster: Any, clients_python: str, client: str) -> None:
    done = cluster.run(clients_python, str(PROGRAMS / f"with_{client}.py"))

    assert done.returncode == 0, done.stderr
