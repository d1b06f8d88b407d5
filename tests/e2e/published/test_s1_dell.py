"""Dell's guide to OpenShift: its lines, with kubectl for `oc`, which sends the same requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REQUESTS = "/apis/project.openshift.io/v1/projectrequests"


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster("--nodes", "2", "--simulate-gpus", "4") as started:
        yield started


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
    label = "openshift.com/gpu-accelerator=true"

    assert cluster.kubectl("label", "node", "node-0", label) == "node/node-0 labeled\n"

    assert cluster.kubectl("get", "nodes", "-l", label, "-o", "name") == "node/node-0\n"
    described = cluster.kubectl("describe", "node", "node-0")
    for part in ("Capacity:", "Allocatable:"):
        fields = described.split(f"\n{part}\n")[1].split("\n  pods:")[0]
        assert [line.split() for line in fields.splitlines()][-1] == ["nvidia.com/gpu:", "4"]


def test_the_table_of_selinux_labels_is_shown_with_what_files_have(cluster: Any) -> None:
    shown = cluster.gangline("check", "--gpu")

    rows = {line.split()[1] for line in shown.stdout.splitlines()[1:]}
    assert rows == {"xserver_misc_device_t", "xserver_exec_t", "container_file_t"}
    if not Path("/sys/fs/selinux/enforce").exists():
        assert shown.returncode == 0
        assert "SELinux is off" in shown.stderr
