"""Dell's guide to OpenShift: its lines, with kubectl for `oc`, which sends the same requests."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LABEL = "openshift.com/gpu-accelerator=true"
LIMIT_S = 60
PUBLISHED = [
    "Loading NVML",
    "Fetching devices.",
    "Starting FS watcher.",
    "Starting OS watcher.",
    "Starting to serve on /var/lib/kubelet/device-plugins/nvidia.sock",
    "Registered device plugin with Kubelet",
]
REQUESTS = "/apis/project.openshift.io/v1/projectrequests"


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster("--nodes", "2", "--simulate-gpus", "4") as started:
        yield started


def eventually(read: Callable[[], str], line: str, count: int = 1) -> str:
    """Return a text once a line is in it that often."""
    until_s = time.monotonic() + LIMIT_S
    while (text := read()).count(line) < count:
        assert time.monotonic() < until_s, text
        time.sleep(0.2)
    return text


def new_project(cluster: Any, name: str) -> Any:
    """Send what `oc new-project NAME --display-name=Nvidia` sends."""
    request = {
        "kind": "ProjectRequest",
        "apiVersion": "project.openshift.io/v1",
        "metadata": {"name": name},
        "displayName": "Nvidia",
    }
    return cluster.try_kubectl("create", "--raw", REQUESTS, "-f", "-", stdin=json.dumps(request))


def test_a_new_project_is_a_namespace_and_goes_with_it(cluster: Any) -> None:
    project = json.loads(new_project(cluster, "nvidia").stdout)

    assert (project["kind"], project["metadata"]["name"]) == ("Project", "nvidia")
    assert project["metadata"]["annotations"]["openshift.io/display-name"] == "Nvidia"
    assert project["status"] == {"phase": "Active"}
    assert cluster.get("namespace", "nvidia")["kind"] == "Namespace"
    names = cluster.kubectl("get", "projects", "-o", "name").split()
    assert "project.project.openshift.io/nvidia" in names
    assert "project.project.openshift.io/default" in names
    again = new_project(cluster, "nvidia")
    assert again.stderr.rstrip().endswith('projects.project.openshift.io "nvidia" already exists')
    assert "deleted" in cluster.kubectl("delete", "project", "nvidia", "--timeout=60s")
    assert "not found" in cluster.try_kubectl("get", "namespace", "nvidia").stderr


def test_a_node_is_labelled_and_tells_its_gpus(cluster: Any) -> None:
    assert cluster.kubectl("label", "node", "node-0", LABEL) == "node/node-0 labeled\n"

    assert cluster.kubectl("get", "nodes", "-l", LABEL, "-o", "name") == "node/node-0\n"
    described = cluster.kubectl("describe", "node", "node-0")
    for part in ("Capacity:", "Allocatable:"):
        fields = described.split(f"\n{part}\n")[1].split("\n  pods:")[0]
        assert [line.split() for line in fields.splitlines()][-1] == ["nvidia.com/gpu:", "4"]


def test_the_device_plugin_runs_on_labelled_nodes_and_its_log_has_the_published_lines(cluster: Any) -> None:
    """`oc create -f nvidia-device-plugin.yml`, its pods, its log; and the pod that asks for a GPU then."""
    pytest.importorskip("grpc", reason="needs grpcio")
    cluster.kubectl("label", "node", "node-1", LABEL, "--overwrite")
    assert cluster.create("pods/device-plugin.yaml") == "nvidia-device-plugin-daemonset"

    of_plugin = ("-n", "kube-system", "-l", "name=nvidia-device-plugin-ds")
    cluster.kubectl("-n", "kube-system", "rollout", "status", "ds/nvidia-device-plugin-daemonset")
    labelled = set(cluster.kubectl("get", "nodes", "-l", LABEL, "-o", "name").split())
    pods = cluster.get("pods", *of_plugin)["items"]
    assert {f"node/{pod['spec']['nodeName']}" for pod in pods} == labelled
    log = eventually(
        lambda: cluster.kubectl("logs", *of_plugin[:2], pods[0]["metadata"]["name"]), PUBLISHED[-1]
    )
    lines = [line.split(" ", 2)[2] for line in log.splitlines()]
    assert [line for line in lines if line in PUBLISHED] == PUBLISHED
    assert "4 simulated GPUs, as the node agent shows them: gpu" in lines
    for part in ("Capacity:", "Allocatable:"):
        fields = cluster.kubectl("describe", "node", "node-1").split(f"\n{part}\n")[1]
        assert "nvidia.com/gpu:     4" in fields.split("\n  pods:")[0]

    cluster.create("pods/cuda-vector-add.yaml")
    cluster.kubectl(
        "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/cuda-vector-add", "--timeout=60s"
    )
    said = cluster.kubectl("logs", "cuda-vector-add")
    assert said.startswith("[Vector addition of 50000 elements]\n")
    assert "Test PASSED" not in said
    cluster.kubectl("delete", "pod/cuda-vector-add")
    cluster.kubectl("delete", "-n", "kube-system", "ds/nvidia-device-plugin-daemonset")


def test_the_device_plugin_registers_again_and_tells_of_broken_gpus(cluster: Any) -> None:
    pytest.importorskip("grpc", reason="needs grpcio")
    cluster.kubectl("label", "node", "node-1", LABEL, "--overwrite")
    cluster.create("pods/device-plugin.yaml")
    cluster.kubectl("-n", "kube-system", "rollout", "status", "ds/nvidia-device-plugin-daemonset")
    (pod,) = (
        pod["metadata"]["name"]
        for pod in cluster.get("pods", "-n", "kube-system", "-l", "name=nvidia-device-plugin-ds")["items"]
        if pod["spec"]["nodeName"] == "node-1"
    )

    def log() -> str:
        return str(cluster.kubectl("logs", "-n", "kube-system", pod))

    eventually(log, PUBLISHED[-1])
    cluster.gangline("node", "set-gpu", "node-1", "2", "unhealthy")
    eventually(log, "GPU GPU-simulated-node-1-2 is Unhealthy")
    cluster.gangline("node", "set-gpu", "node-1", "2", "healthy")
    eventually(log, "GPU GPU-simulated-node-1-2 is Healthy")

    os.kill(json.loads((cluster.files / "agent.json").read_text())["pid"], signal.SIGKILL)

    eventually(log, PUBLISHED[-1], count=2)
    assert "/var/lib/kubelet/device-plugins/kubelet.sock created, restarting." in log()
    cluster.kubectl("delete", "-n", "kube-system", "ds/nvidia-device-plugin-daemonset")


def test_the_table_of_selinux_labels_is_shown_with_what_files_have(cluster: Any) -> None:
    shown = cluster.gangline("check", "--gpu")

    rows = {line.split()[1] for line in shown.stdout.split("\nPATH ")[1].splitlines()[1:]}
    assert rows == {"xserver_misc_device_t", "xserver_exec_t", "container_file_t"}
    if not Path("/sys/fs/selinux/enforce").exists():
        assert shown.returncode == 0
        assert "SELinux is off" in shown.stderr
