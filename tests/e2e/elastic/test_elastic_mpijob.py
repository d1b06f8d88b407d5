"""An MPIJob whose workers come and go while its launcher runs, which asks discover_hosts.sh for them.

In scope: the script in the launcher's own file system, and that mpirun reaches each host that it names.
Horovod, whose elastic driver asks so, is not here. Each worker asks for the one simulated GPU of a node.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.xdist_group("elastic")

PROGRAM = Path(__file__).with_name("follow_hosts.sh")
NEW_WORLD_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster("--nodes", "3", "--simulate-gpus", "1") as started:
        started.kubectl("create", "configmap", "program", f"--from-file={PROGRAM}")
        yield started


class Following:
    """An elastic MPIJob, and the worlds that its launcher has made so far."""

    def __init__(self, cluster: Any, name: str, folder: Path, workers: int) -> None:
        self.cluster, self.name = cluster, name
        self._folder = folder
        cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(self._job(workers)))

    def _job(self, workers: int) -> dict[str, Any]:
        launcher = {
            "name": "launcher",
            "image": "gangline/base",
            # Whoever reads the command sees that the job is elastic.
            "command": ["sh", "/program/follow_hosts.sh", "/told"],
            "env": [{"name": "HOSTS", "value": "/etc/mpi/discover_hosts.sh"}],
            "volumeMounts": [
                {"name": "program", "mountPath": "/program"},
                {"name": "told", "mountPath": "/told"},
            ],
        }
        volumes = [
            {"name": "program", "configMap": {"name": "program"}},
            {"name": "told", "hostPath": {"path": str(self._folder)}},
        ]
        place = {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}  # which is lost in no test
        worker = {"name": "worker", "image": "gangline/base", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        roles = {
            "Launcher": {"template": {"spec": {"containers": [launcher], "volumes": volumes, **place}}},
            "Worker": {"replicas": workers, "template": {"spec": {"containers": [worker]}}},
        }
        return {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": self.name},
            "spec": {"runPolicy": {"cleanPodPolicy": "All"}, "mpiReplicaSpecs": roles},
        }

    def scale(self, workers: int) -> None:
        self.cluster.kubectl("scale", f"mpijob/{self.name}", f"--replicas={workers}")

    def reaches(self, *indices: int) -> None:
        """Wait until mpirun has started a rank on each of these workers and no other."""
        wanted = " ".join(f"{self.name}-worker-{index}" for index in indices)
        told, end = self._folder / "worlds", time.monotonic() + NEW_WORLD_LIMIT_S
        while not (told.exists() and told.read_text().splitlines()[-1:] == [wanted]):
            if time.monotonic() > end:
                pods = self.cluster.kubectl("get", "pods", "-o", "wide")
                script = self.cluster.kubectl("get", "configmap", f"{self.name}-config", "-o", "yaml")
                worlds = told.read_text() if told.exists() else ""
                log = self.cluster.launcher_log(self.name)
                raise AssertionError(f"waited for {wanted}; worlds:\n{worlds}\n{pods}\n{script}\n{log}")
            time.sleep(0.1)

    def node_of(self, index: int) -> str:
        return str(self.cluster.get("pod", f"{self.name}-worker-{index}")["spec"]["nodeName"])

    def ends(self) -> None:
        """Let the launcher end; the job has succeeded and nothing of it was started again."""
        (self._folder / "stop").touch()
        self.cluster.kubectl("wait", "--for=condition=Succeeded", f"mpijob/{self.name}", "--timeout=60s")
        status = self.cluster.get("mpijob", self.name)["status"]
        assert "restarts" not in status
        self.cluster.kubectl("delete", "mpijob", self.name)


def test_workers_are_scaled_up_and_down_while_the_launcher_runs(cluster: Any, tmp_path: Path) -> None:
    job = Following(cluster, "scaled", tmp_path, workers=1)

    job.reaches(0)
    job.scale(3)
    job.reaches(0, 1, 2)
    job.scale(2)
    job.reaches(0, 1)
    job.ends()


def test_a_worker_is_lost_with_its_node_and_comes_back_when_one_is_free(cluster: Any, tmp_path: Path) -> None:
    job = Following(cluster, "lost", tmp_path, workers=3)
    job.reaches(0, 1, 2)
    lost = next(index for index in range(3) if job.node_of(index) == "node-2")
    kept = [index for index in range(3) if index != lost]

    cluster.kubectl("delete", "node", "node-2")
    job.reaches(*kept)
    cluster.up("--nodes", "3")
    job.reaches(0, 1, 2)
    job.ends()


def test_a_worker_joins_on_a_node_that_another_job_has_freed(cluster: Any, tmp_path: Path) -> None:
    main = {"name": "main", "image": "gangline/base", "command": ["sleep", "600"]}
    main["resources"] = {"limits": {"nvidia.com/gpu": 1}}  # type: ignore[assignment]
    other = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [main]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": other}
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(pod))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/other", "--timeout=60s")
    job = Following(cluster, "freed", tmp_path, workers=2)
    job.reaches(0, 1)

    job.scale(3)
    cluster.kubectl("wait", "--for=condition=PodScheduled=false", "pod/freed-worker-2", "--timeout=60s")
    cluster.kubectl("delete", "pod", "other")

    job.reaches(0, 1, 2)
    job.ends()
