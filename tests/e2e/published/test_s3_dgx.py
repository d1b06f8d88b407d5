"""NVIDIA's guide to DGX machines on OpenShift: a container to work in, on GPUs of one's choice.

Its pod and its MPIJobs are in test_published_on_simulated_gpus.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

IMAGE = "horovod/horovod"
TAG = "0.18.1-tf1.14.0-torch1.2.0-mxnet1.5.0-py3.6"
BOX = {
    "name": "box",
    "image": f"{IMAGE}:{TAG}",
    "stdin": True,
    "tty": False,
    "command": ["sh"],
    "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "1,3"}],
    "resources": {"limits": {"nvidia.com/gpu": 8}},
}


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, saying_python: Path) -> Iterator[Any]:
    with start_cluster("--simulate-gpus", "8", "--image", f"{IMAGE}={saying_python}") as started:
        yield started


def test_a_container_runs_what_is_typed_into_it_and_goes(cluster: Any) -> None:
    lines = 'pwd; sleep 1; echo "devices $CUDA_VISIBLE_DEVICES"; exit\n'

    done = cluster.try_kubectl(
        *("run", "box", "-i", "--rm", "--restart=Never", f"--image={IMAGE}:{TAG}"),
        f"--overrides={json.dumps({'spec': {'containers': [BOX]}})}",
        stdin=lines,
    )

    assert done.returncode == 0, done.stderr
    assert "devices 1,3" in done.stdout
    assert "not found" in cluster.try_kubectl("get", "pod", "box").stderr


def test_horovodrun_starts_eight_ranks_by_hand_in_a_container(cluster: Any, said: Any) -> None:
    container = {**BOX, "command": ["sleep", "600"], "env": []}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dgx"},
        "spec": {"containers": [container]},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/dgx", "--timeout=60s")

    line = "horovodrun -np 8 -H localhost:8 python pytorch_synthetic_benchmark.py"
    log = cluster.kubectl("exec", "dgx", "--", *line.split())

    ranks = said(log)
    assert {rank: size for rank, (size, *_) in ranks.items()} == dict.fromkeys(range(8), 8)
    assert {words for *_, words in ranks.values()} == {"pytorch_synthetic_benchmark.py"}
    cluster.kubectl("delete", "pod", "dgx", "--now")
