"""A training that goes on in its processes while pods of its job come, go and are deleted.

In scope: `gangline launch` in the launcher of an MPIJob, which asks discover_hosts.sh, and in every worker of
a PyTorchJob, where worker 0 leads; `gangline.train.run_elastic` in the ranks; kubectl scale and delete.
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

PROGRAM = Path(__file__).with_name("train_elastic.py")
SOURCES = Path(__file__).resolve().parents[3] / "src"
IMAGE = "elastic/torch"
STEPS_PER_COMMIT = 4
CHANGE_LIMIT_S = 90.0
"""For a pod to come, and to import torch on a busy machine."""
LAUNCH = ("gangline", "launch", "--cool-down", "1")
RANK = ("--", "python3", f"/program/{PROGRAM.name}", "/told")


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, torch_python: str) -> Iterator[Any]:
    image = f"{IMAGE}={Path(torch_python).parents[1]}"
    with start_cluster("--nodes", "2", "--image", image) as started:
        started.kubectl("create", "configmap", "program", f"--from-file={PROGRAM}")
        yield started


def pod(name: str, folder: Path, command: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a template whose container sees program and folder."""
    container: dict[str, Any] = {"name": name, "image": IMAGE}
    if command:
        container["command"] = list(command)
    container["env"] = [
        {"name": "OMP_NUM_THREADS", "value": "1"},
        {"name": "PYTHONPATH", "value": str(SOURCES)},
    ]
    container["volumeMounts"] = [
        {"name": "program", "mountPath": "/program"},
        {"name": "told", "mountPath": "/told"},
    ]
    volumes = [
        {"name": "program", "configMap": {"name": "program"}},
        {"name": "told", "hostPath": {"path": str(folder)}},
    ]
    return {"spec": {"terminationGracePeriodSeconds": 10, "containers": [container], "volumes": volumes}}


def mpijob(folder: Path) -> dict[str, Any]:
    asked = ("--min-ranks", "1", "--host-discovery-script", "/etc/mpi/discover_hosts.sh")
    roles = {
        "Launcher": {"template": pod("launcher", folder, (*LAUNCH, *asked, *RANK))},
        "Worker": {"replicas": 2, "template": pod("worker", folder)},
    }
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "spec": {"mpiReplicaSpecs": roles}}


def pytorchjob(folder: Path) -> dict[str, Any]:
    worker = {
        "replicas": 2,
        "restartPolicy": "OnFailure",
        "template": pod("pytorch", folder, (*LAUNCH, *RANK)),
    }
    spec = {
        "nprocPerNode": "1",
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 0},
        "pytorchReplicaSpecs": {"Worker": worker},
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": spec}


class Training:
    """A job that trains, and what its ranks have told."""

    def __init__(self, cluster: Any, folder: Path, job: dict[str, Any]) -> None:
        self.cluster, self._folder, self._seen = cluster, folder, 0
        self.name = job["kind"].lower() + "-line"
        self.job = f"{job['kind'].lower()}/{self.name}"
        cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(job | {"metadata": {"name": self.name}}))

    def steps(self) -> list[dict[str, Any]]:
        """Return what has been told of each step, in the order in which they were taken."""
        return [json.loads(line) for line in self._lines("steps.jsonl")]

    def starts(self) -> list[str]:
        """Return the pods in which processes were started."""
        return [line.split()[0] for line in self._lines("started")]

    def _lines(self, name: str) -> list[str]:
        path = self._folder / name
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [line for line in lines if line.endswith("\n")]

    def goes_on_with(self, ranks: int, starts: int) -> None:
        """Wait until so many ranks have trained past a commit, after so many starts of processes."""

        def does() -> bool:
            sizes = [one["ranks"] for one in self.steps()[self._seen :]]
            last = sizes[-STEPS_PER_COMMIT - 1 :]
            has_changed = self._seen == 0 or any(size != ranks for size in sizes)
            is_on = len(last) > STEPS_PER_COMMIT and set(last) == {ranks}
            return len(self.starts()) >= starts and has_changed and is_on

        self._wait(does, f"{ranks} ranks to train after {starts} starts")
        self._seen = len(self.steps())

    def scale(self, workers: int) -> None:
        self.cluster.kubectl("scale", self.job, f"--replicas={workers}")

    def delete_worker(self, index: int) -> None:
        self.cluster.kubectl("delete", "pod", f"{self.name}-worker-{index}", "--wait=false")

    def ends(self) -> dict[str, Any]:
        """Let the program stop and return the job once it has succeeded."""
        (self._folder / "stop").touch()
        self.cluster.kubectl("wait", "--for=condition=Succeeded", self.job, "--timeout=60s")
        return dict(self.cluster.get(*self.job.split("/")))

    def logs(self) -> str:
        """Return what the pods of the job say."""
        pods = self.cluster.kubectl("get", "pods", "-o", "name").split()
        return "\n".join(
            f"{name}:\n{self.cluster.try_kubectl('logs', name, '--tail=60').stdout}"
            for name in pods
            if self.name in name
        )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + CHANGE_LIMIT_S
        while not condition():
            if time.monotonic() > end:
                pods = self.cluster.kubectl("get", "pods", "-o", "wide")
                raise AssertionError(
                    f"waited for {what}; last told: {self.steps()[-3:]}\n{pods}\n{self.logs()}"
                )
            time.sleep(0.1)


@pytest.mark.parametrize("make", [mpijob, pytorchjob])
def test_training_goes_on_in_its_processes_while_pods_come_and_go(
    cluster: Any, tmp_path: Path, make: Callable[[Path], dict[str, Any]]
) -> None:
    training = Training(cluster, tmp_path, make(tmp_path))
    training.goes_on_with(2, starts=2)
    training.scale(3)
    training.goes_on_with(3, starts=3)
    training.delete_worker(1)
    training.goes_on_with(3, starts=4)
    training.scale(1)
    training.goes_on_with(1, starts=4)
    job = training.ends()

    worker = f"{training.name}-worker"
    first, later = training.starts()[:2], training.starts()[2:]
    assert later == [f"{worker}-2", f"{worker}-1"], training.logs()  # nobody else was started again
    assert sorted(first) == [f"{worker}-0", f"{worker}-1"]
    assert_at_most_one_save_is_lost(training.steps(), steps_per_save=STEPS_PER_COMMIT)
    assert_the_loss_goes_on_falling(training.steps())
    assert not job["status"].get("restarts")
