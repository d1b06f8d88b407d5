"""Python clients of others, unmodified: each program here does what its client is used for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import control_plane
import pytest

pytestmark = pytest.mark.clients

KUBEFLOW = ("kubeflow_training", "kubeflow_training_functions", "kubeflow_trainer")
CLIENTS = ("kr8s", "lightkube", "pykube", "kopf", "kubernetes", *KUBEFLOW)
PROGRAMS = Path(__file__).with_name("programs")


TORCHRUN = """#!/bin/sh
# Stands in for torch's own, which is not here: one process that is told its place.
RANK=$PET_NODE_RANK WORLD_SIZE=$PET_NNODES exec python3 "$@"
"""


PROGRAMS_OF_KUBERNETES = ("etcd", "kube-apiserver", "kube-controller-manager")


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that stands for the image of the runtime ``torch-distributed``."""
    folder = tmp_path_factory.mktemp("torch")
    (folder / "bin").mkdir()
    (folder / "bin" / "torchrun").write_text(TORCHRUN)
    (folder / "bin" / "torchrun").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, torch: Path) -> Iterator[Any]:
    with start_cluster("--image", f"pytorch/pytorch={torch}") as started:
        yield started


@pytest.fixture(scope="module")
def kubernetes(start_cluster: Any, torch: Path) -> Iterator[Any]:
    """Kubernetes' own control plane over our node agent."""
    try:
        control_plane.require(PROGRAMS_OF_KUBERNETES)
    except control_plane.NotBuilt as error:
        pytest.skip(str(error))
    with start_cluster("--control-plane", "kubernetes", "--image", f"pytorch/pytorch={torch}") as started:
        yield started


@pytest.mark.parametrize("client", [*CLIENTS])
def test_a_program_written_with_the_client_runs(cluster: Any, clients_python: str, client: str) -> None:
    done = cluster.run(clients_python, str(PROGRAMS / f"with_{client}.py"))

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("client", [*KUBEFLOW])
def test_kubeflows_own_run_on_kubernetes_own_server(
    kubernetes: Any, clients_python: str, client: str
) -> None:
    done = kubernetes.run(clients_python, str(PROGRAMS / f"with_{client}.py"))

    assert done.returncode == 0, done.stderr
