"""From the MPI operator to Gangline and back, with jobs that run: docs/guides/migrate.md, line by line."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

GUIDE = Path(__file__).parents[3] / "docs/guides/migrate.md"
FOLDERS = ("bin", "dev", "etc", "lib", "opt", "proc", "sys", "tmp", "usr/bin")
"""Of a root file system; the image has the program at /opt, as its publisher's."""

MPIJOB = "mpijobs.v2beta1.kubeflow.org"
THEIRS = ("-n", "mpi-operator", "deployment/mpi-operator")
NAME = "training.kubeflow.org/job-name"
LIMIT = "--timeout=120s"
TOO_MUCH = {"requests": {"cpu": "100k"}}


def mpijob(name: str, *, suspend: bool = False, resources: dict[str, Any] | None = None) -> str:
    """A job that runs ranks on both workers at its start and at its end, which `Scene.end` brings about."""
    ranks = "mpirun -n 2 echo"
    waiting = f"{ranks} begun; until [ -e /told/end ]; do sleep 0.1; done; {ranks} ended"
    told: dict[str, Any] = {"volumeMounts": [{"name": "told", "mountPath": "/told"}]}
    main: dict[str, Any] = {"name": "main", "image": "gangline/base", "resources": resources or {}}
    launcher = {
        "containers": [{**main, **told, "command": ["sh", "-c", waiting]}],
        "volumes": [{"name": "told", "emptyDir": {}}],
    }
    worker: dict[str, Any] = {"containers": [main]}
    return yaml.safe_dump(
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": name},
            "spec": {
                "runPolicy": {"suspend": suspend, "cleanPodPolicy": "Running"},
                "mpiReplicaSpecs": {
                    "Launcher": {"restartPolicy": "Never", "template": {"spec": launcher}},
                    "Worker": {"replicas": 2, "template": {"spec": worker}},
                },
            },
        }
    )


class Scene:
    """The cluster, its jobs, and the lines of the guide."""

    def __init__(self, cluster: Any) -> None:
        self.kubectl: Callable[..., str] = cluster.kubectl
        self._run = cluster.run
        self.context = self.kubectl("config", "current-context").strip()
        blocks = re.findall(r"^```\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
        lines = "".join(blocks).splitlines()
        self.unsaid = {line for line in lines if line.startswith(("kubectl ", "gangline "))}

    def guide(self, line: str, **names: str) -> str:
        """Run a line of the guide with names of this cluster in place of those in capitals."""
        self.unsaid.remove(line)
        return self.again(line, **names)

    def again(self, line: str, **names: str) -> str:
        for word, name in {"CONTEXT": self.context, **names}.items():
            line = re.sub(rf"\b{word}\b", name, line)
        words = line.split()
        program = [sys.executable, "-m", "gangline"] if words[0] == "gangline" else words[:1]
        done = self._run(*program, *words[1:])
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return str(done.stdout)

    def start(self, name: str, **how: Any) -> None:
        self.kubectl("create", "-f", "-", stdin=mpijob(name, **how))

    def until(self, name: str, condition: str) -> None:
        self.kubectl("wait", f"{MPIJOB}/{name}", f"--for=condition={condition}", LIMIT)

    def begun(self, name: str) -> None:
        """Wait until its ranks have run once."""
        self.until(name, "Running")
        self.kubectl("wait", "pods", "-l", f"{NAME}={name}", "--for=condition=Ready", LIMIT)

    def resume(self, name: str) -> None:
        self.kubectl("patch", MPIJOB, name, "--type=merge", "-p", '{"spec":{"runPolicy":{"suspend":false}}}')

    def end(self, name: str) -> None:
        """Have a job's program end, and see that ranks ran on both workers before and after."""
        self.kubectl("exec", f"job/{name}-launcher", "--", "touch", "/told/end")
        self.until(name, "Succeeded")
        mine = ("-l", f"{NAME}={name},training.kubeflow.org/job-role=worker")
        self.kubectl("wait", "pods", *mine, "--for=delete", LIMIT)
        log = self.kubectl("logs", f"job/{name}-launcher").splitlines()
        assert log == ["begun", "begun", "ended", "ended"]

    def pods(self, *names: str) -> dict[str, tuple[str, str, int]]:
        """Identity, begin of the program and its restarts, by pod."""
        found = json.loads(self.kubectl("get", "pods", "-l", f"{NAME} in ({','.join(names)})", "-o", "json"))
        return {pod["metadata"]["name"]: _life(pod) for pod in found["items"]}

    def secrets(self, *names: str) -> dict[str, dict[str, str]]:
        """The key pairs by job, without what Gangline lays beside them."""
        found = (json.loads(self.kubectl("get", "secret", f"{name}-ssh", "-o", "json")) for name in names)
        keys = ("ssh-privatekey", "ssh-publickey")
        return {one["metadata"]["name"]: {key: one["data"][key] for key in keys} for one in found}

    def told(self, name: str) -> dict[str, Any]:
        """What has become of a job, and when; operators count pods and order conditions each in its way."""
        status = json.loads(self.kubectl("get", MPIJOB, name, "-o", "json"))["status"]
        times = {key: status.get(key) for key in ("startTime", "completionTime")}
        return {one["type"]: one for one in status["conditions"]} | times

    def replicas(self) -> str:
        return self.kubectl("get", *THEIRS, "-o", "jsonpath={.spec.replicas}")

    def worker(self, name: str) -> Any:
        return json.loads(self.kubectl("get", "pod", f"{name}-worker-0", "-o", "json"))


def _life(pod: dict[str, Any]) -> tuple[str, str, int]:
    (container,) = pod["status"]["containerStatuses"]
    began = container["state"].get("running", {}).get("startedAt", "")
    return pod["metadata"]["uid"], began, container["restartCount"]


@pytest.fixture
def scene(start_cluster: Any, programs: Path, tmp_path: Path) -> Iterator[Scene]:
    """Kubernetes' control plane and the MPI operator, by its own file and as its own program."""
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(programs / "mpi-operator", tmp_path / "opt/mpi-operator")
    shutil.copy("/bin/sh", tmp_path / "bin/sh")
    image = f"mpioperator/mpi-operator={tmp_path}"
    with start_cluster("--control-plane", "kubernetes", "--no-operator", "--image", image) as cluster:
        found = Scene(cluster)
        file = programs / "mpi-operator-files/deploy/v2beta1/mpi-operator.yaml"
        found.kubectl("apply", "--server-side", "-f", str(file))
        for is_there in ("jsonpath={.status.acceptedNames.kind}=MPIJob", "condition=Established"):
            found.kubectl("wait", "crd/mpijobs.kubeflow.org", f"--for={is_there}", LIMIT)
        entry = [
            {"op": "add", "path": "/spec/template/spec/containers/0/command", "value": ["/opt/mpi-operator"]}
        ]
        found.kubectl("patch", *THEIRS, "--type=json", "-p", json.dumps(entry))
        found.kubectl("rollout", "status", *THEIRS, LIMIT)
        yield found


def test_jobs_go_on_from_the_mpi_operator_to_gangline_and_back(scene: Scene) -> None:
    for name, suspend in (("stays", False), ("changes", False), ("over", False), ("paused", True)):
        scene.start(name, suspend=suspend)
    for name in ("stays", "changes", "over"):
        scene.begun(name)
    scene.end("over")
    scene.until("paused", "Suspended")
    assert "mpi_job_controller.go" in scene.kubectl("logs", *THEIRS)
    namespace = scene.kubectl("get", "ns", "mpi-operator", "-o", "jsonpath={.metadata.uid}")
    definition = json.loads(scene.kubectl("get", "crd", "mpijobs.kubeflow.org", "-o", "json"))["spec"]
    told = {name: scene.told(name) for name in ("stays", "over", "paused")}
    pods, secrets = scene.pods("stays", "changes", "over"), scene.secrets("stays", "changes", "paused")

    take_over(scene)

    assert scene.replicas() == "0"
    assert scene.pods("stays", "changes", "over") == pods
    scene.end("changes")
    for name in ("runs", "ours-paused"):
        scene.start(name, suspend=name != "runs")
    scene.begun("runs")
    scene.start("waits", resources=TOO_MUCH)
    scene.until("ours-paused", "Suspended")
    scene.kubectl("wait", "pod/waits-worker-0", "--for=condition=PodScheduled=false", LIMIT)
    assert scene.pods("stays") == {name: life for name, life in pods.items() if name.startswith("stays")}
    assert {name: scene.told(name) for name in told} == told
    assert "deployment/gangline-scheduler ready" in scene.guide("gangline install --context CONTEXT")
    ours = scene.pods("stays", "runs")
    secrets |= scene.secrets("runs", "ours-paused")

    go_back(scene)

    assert scene.kubectl("get", "ns", "mpi-operator", "-o", "jsonpath={.metadata.uid}") == namespace
    assert scene.replicas() == "1"
    live = json.loads(scene.kubectl("get", "crd", "mpijobs.kubeflow.org", "-o", "json"))["spec"]
    assert live == definition
    scene.kubectl("wait", "pod/waits-worker-0", "--for=create", LIMIT)
    assert "ssh-config" not in json.dumps(scene.worker("waits"))
    for name in ("paused", "ours-paused"):
        scene.resume(name)
        scene.begun(name)
    assert scene.pods("stays", "runs") == ours
    assert scene.told("over") == told["over"]
    assert scene.secrets("stays", "changes", "paused", "runs", "ours-paused") == secrets
    for name in ("stays", "runs", "paused", "ours-paused"):
        scene.end(name)
    scene.guide("kubectl -n NAMESPACE delete job NAME-launcher", NAMESPACE="default", NAME="waits")
    scene.kubectl("wait", "job/waits-launcher", "--for=create", LIMIT)
    assert scene.unsaid == set()


def take_over(scene: Scene) -> None:
    found = scene.guide("kubectl get deployments -A -l app.kubernetes.io/name=mpi-operator")
    assert "mpi-operator   mpi-operator" in found
    assert "changes" in scene.guide("kubectl get mpijobs -A")
    dry = scene.guide("gangline install --context CONTEXT --replace --operator-only --dry-run")
    assert "deployment/gangline-operator created (dry run)" in dry
    assert scene.replicas() == "1"
    lines = scene.guide("gangline install --context CONTEXT --replace --operator-only").splitlines()
    assert "deployment/mpi-operator in mpi-operator (mpioperator/mpi-operator:0.8.2) stopped" in lines
    assert lines[-1] == "deployment/gangline-operator ready"
    assert "MPIJob" in scene.guide("kubectl api-resources --api-group kubeflow.org")
    assert "Running" in scene.again("kubectl get mpijobs -A")


def go_back(scene: Scene) -> None:
    lines = scene.guide("gangline uninstall --context CONTEXT").splitlines()
    assert "customresourcedefinition/mpijobs.kubeflow.org put back" in lines
    assert "deployment/mpi-operator in mpi-operator (mpioperator/mpi-operator:0.8.2) started again" in lines
    scene.guide("kubectl -n mpi-operator rollout status deployment/mpi-operator")
    scene.again("kubectl api-resources --api-group kubeflow.org")
    assert "stays" in scene.again("kubectl get mpijobs -A")
