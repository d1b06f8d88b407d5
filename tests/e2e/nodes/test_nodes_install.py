"""What the guide says and nothing else, on two nodes: load images, install, run the README's file."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from node import PAUSE_IMAGE
from nodes import Nodes

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/01-digits/mpijob.yaml"
Kubectl = Callable[..., str]


@pytest.fixture
def device_plugin(nodes: Nodes, archives: list[Path], kubectl: Kubectl, tmp_path: Path) -> Iterator[str]:
    """The device plugin as docs/guides/gpus.md installs it, with two simulated GPUs; the node that has it."""
    name, file = nodes.names[1], tmp_path / "device-plugin.yaml"
    for archive in archives:
        nodes.load(archive)
    daemon_set = yaml.safe_load((ROOT / "deploy/device-plugin.yaml").read_text())
    daemon_set["spec"]["template"]["spec"]["containers"][0]["args"] = ["--simulate-gpus=2"]
    file.write_text(yaml.safe_dump(daemon_set))
    kubectl("label", "node", name, "openshift.com/gpu-accelerator=true")
    kubectl("apply", "-f", str(file))
    try:
        kubectl("-n", "kube-system", "rollout", "status", "ds/gangline-device-plugin", "--timeout=100s")
        yield name
    finally:
        kubectl("delete", "-f", str(file), "--ignore-not-found")
        kubectl("label", "node", name, "openshift.com/gpu-accelerator-")


@pytest.fixture
def installed(nodes: Nodes, archives: list[Path]) -> Iterator[None]:
    """Operator and scheduler as docs/guides/install.md installs them, with the images on the nodes."""
    for archive in archives:
        nodes.load(archive)

    def gangline(command: str, *words: str) -> None:
        line = [sys.executable, "-m", "gangline", command, "--kubeconfig", str(nodes.kubeconfig), *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stderr

    try:
        begun = time.monotonic()
        gangline("install")
        print(f"installed and ready after {time.monotonic() - begun:.1f} s")
        yield
    finally:
        gangline("uninstall", "--keep-jobs")


def test_the_readmes_file_runs_on_what_the_guide_installs(installed: None, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(EXAMPLE))
    try:
        kubectl("wait", "mpijob/digits", "--for=condition=Succeeded", "--timeout=100s")
        log = kubectl("logs", "-l", "training.kubeflow.org/job-role=launcher", "--tail=-1")
    finally:
        kubectl("delete", "-f", str(EXAMPLE))

    assert "parameters identical on 4 ranks after every epoch" in log


def test_the_installed_scheduler_is_asked_why_a_pod_waits(
    installed: None, nodes: Nodes, kubectl: Kubectl
) -> None:
    """Its pod answers through the API server."""
    nowhere = '{"spec":{"schedulerName":"gangline-scheduler","nodeSelector":{"no":"where"}}}'
    kubectl("run", "asks", "--overrides", nowhere, f"--image={PAUSE_IMAGE}", "--command", "--", "/pause")
    try:
        kubectl("wait", "pod/asks", "--for=jsonpath={.status.conditions[0].status}=False", "--timeout=100s")
        line = [
            sys.executable,
            "-m",
            "gangline",
            "explain",
            "pod/asks",
            "--kubeconfig",
            str(nodes.kubeconfig),
        ]
        told = subprocess.run(line, capture_output=True, text=True, check=True, timeout=100).stdout
    finally:
        kubectl("delete", "pod/asks", "--grace-period=0", "--force")

    assert "\n  as seen by    gangline-scheduler-" in told, told
    assert "didn't match Pod's node affinity/selector" in " ".join(told.split())


def test_the_device_plugin_of_the_guide_serves_labelled_nodes(device_plugin: str, kubectl: Kubectl) -> None:
    """Its GPUs are simulated."""
    there = "--for=jsonpath={.status.allocatable.nvidia\\.com/gpu}=2"
    kubectl("wait", f"node/{device_plugin}", there, "--timeout=100s")
    log = kubectl("-n", "kube-system", "logs", "ds/gangline-device-plugin")
    assert "2 simulated GPUs, as this program was told: gpu" in log
    assert "Registered device plugin with Kubelet" in log
    mine = ("-l", "app=gangline-device-plugin")
    pods = kubectl("-n", "kube-system", "get", "pods", *mine, "-o", "jsonpath={.items[*].spec.nodeName}")
    assert pods == device_plugin

    limits = '{"spec":{"containers":[{"name":"asks","resources":{"limits":{"nvidia.com/gpu":1}}}]}}'
    asks = ("--overrides", limits, "--override-type=strategic", f"--image={PAUSE_IMAGE}", "--restart=Never")
    kubectl("run", "asks", *asks, "--grace-period=0", "--command", "--", "/pause")
    try:
        kubectl("wait", "pod/asks", "--for=condition=Ready", "--timeout=100s")
        assert kubectl("get", "pod/asks", "-o", "jsonpath={.spec.nodeName}") == device_plugin
    finally:
        kubectl("delete", "pod/asks", "--grace-period=0", "--force")
