"""Kubeflow's training operator v1.8.1 and its install files, unmodified, and Kubeflow's SDK on it.

Its webhooks are stored and not called: they check jobs, and the jobs here are right.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.clients

SDK = Path(__file__).with_name("programs") / "with_kubeflow_training.py"
FOLDERS = ("bin", "dev", "etc", "lib", "proc", "sys", "tmp", "usr/bin")
"""Of a root file system; the image has the program at its top."""


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    image = tmp_path_factory.mktemp("training-operator")
    for folder in FOLDERS:
        (image / folder).mkdir(parents=True)
    shutil.copy(programs / "training-operator.v1", image / "manager")
    shutil.copy("/bin/sh", image / "bin" / "sh")
    with start_cluster(
        "--no-operator", "--nodes", "2", "--image", f"kubeflow/training-operator={image}"
    ) as started:
        files = programs / "training-operator-files/manifests/overlays/standalone"
        started.kubectl("apply", "--server-side", "-k", str(files))
        started.kubectl(
            "-n", "kubeflow", "rollout", "status", "deployment/training-operator", "--timeout=120s"
        )
        yield started


def test_jobs_of_pytorch_and_tensorflow_run_to_their_end(cluster: Any, clients_python: str) -> None:
    done = cluster.run(clients_python, str(SDK))

    assert done.returncode == 0, done.stderr
