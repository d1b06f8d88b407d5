"""A PyTorchJob whose workers come and go: torchrun forms its world anew, and goes on from what was saved.

In scope: real torchrun with a rendezvous of c10d, on a one-machine cluster whose nodes go and come back. Each
worker asks for the one simulated GPU of a node, so a node fewer is a worker fewer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from told_steps import assert_at_most_one_save_is_lost, assert_the_loss_goes_on_falling

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("elastic")]

PROGRAM = Path(__file__).with_name("train_a_line.py")
IMAGE = "elastic/torch"
STEPS_PER_SAVE = 4
NEW_WORLD_LIMIT_S = 120.0
"""For torchrun to notice who is gone, to wait for others, and to start Python with torch in each pod."""


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, torch_python: str) -> Iterator[Any]:
    image = f"{IMAGE}={Path(torch_python).parents[1]}"
    with start_cluster("--nodes", "3", "--simulate-gpus", "1", "--image", image) as started:
        yield started


class Training:
    """An elastic job that trains, and what its rank 0 has told."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        cluster.kubectl("create", "configmap", "program", f"--from-file={PROGRAM}")
        cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(self._job()))

    def _job(self) -> dict[str, Any]:
        main = {
            "name": "pytorch",
            "image": IMAGE,
            "command": ["python3", "-m", "torch.distributed.run", f"/program/{PROGRAM.name}", "/saved"],
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
            "volumeMounts": [
                {"name": "program", "mountPath": "/program"},
                {"name": "saved", "mountPath": "/saved"},
            ],
        }
        volumes = [
            {"name": "program", "configMap": {"name": "program"}},
            {"name": "saved", "hostPath": {"path": str(self._folder)}},
        ]
        pod = {"terminationGracePeriodSeconds": 5, "containers": [main], "volumes": volumes}
        elastic = {
            "minReplicas": 1,
            "maxReplicas": 3,
            "maxRestarts": 10,
            "rdzvBackend": "c10d",
            "rdzvConf": [
                {"key": "last_call_timeout", "value": "3"},
                {"key": "keep_alive_interval", "value": "1"},
            ],
        }
        worker = {"replicas": 3, "restartPolicy": "OnFailure", "template": {"spec": pod}}
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "line"},
            "spec": {
                "nprocPerNode": "1",
                "elasticPolicy": elastic,
                # A node that is lost takes nothing off it: the job lives through all that follows.
                "runPolicy": {"backoffLimit": 1},
                "pytorchReplicaSpecs": {"Worker": worker},
            },
        }

    def steps(self) -> list[dict[str, Any]]:
        """Return what has been told of each step, in the order in which they were taken."""
        path = self._folder / "steps.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def goes_on_with(self, ranks: int) -> None:
        """Wait until so many ranks have trained past a checkpoint of their own."""

        def has_saved() -> bool:
            last = self.steps()[-STEPS_PER_SAVE - 1 :]
            return len(last) > STEPS_PER_SAVE and {one["ranks"] for one in last} == {ranks}

        self._wait(has_saved, f"{ranks} ranks to train")

    def ends(self) -> dict[str, Any]:
        """Let the program stop and return the job once it has succeeded."""
        (self._folder / "stop").touch()
        self._cluster.kubectl("wait", "--for=condition=Succeeded", "pytorchjob/line", "--timeout=60s")
        return dict(self._cluster.get("pytorchjob", "line"))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + NEW_WORLD_LIMIT_S
        while not condition():
            if time.monotonic() > end:
                pods = self._cluster.kubectl("get", "pods", "-o", "wide")
                logs = self._cluster.kubectl("logs", "line-worker-0", "--tail=40")
                raise AssertionError(f"waited for {what}; last told: {self.steps()[-3:]}\n{pods}\n{logs}")
            time.sleep(0.1)


def test_training_goes_on_while_workers_come_and_go(cluster: Any, tmp_path: Path) -> None:
    training = Training(cluster, tmp_path)
    training.goes_on_with(3)

    cluster.kubectl("delete", "node", "node-2")  # lost with what runs on it
    training.goes_on_with(2)
    cluster.up("--nodes", "3")
    training.goes_on_with(3)
    cluster.kubectl("drain", "node-1", "--ignore-daemonsets", "--force")
    training.goes_on_with(2)
    cluster.kubectl("scale", "pytorchjob/line", "--replicas=1")
    training.goes_on_with(1)
    cluster.kubectl("uncordon", "node-1")
    cluster.kubectl("scale", "pytorchjob/line", "--replicas=3")
    training.goes_on_with(3)
    job = training.ends()

    steps = training.steps()
    assert_at_most_one_save_is_lost(steps, steps_per_save=STEPS_PER_SAVE)
    assert_the_loss_goes_on_falling(steps)
    assert not job["status"].get("restarts")
