"""What the guide says and nothing else, on two nodes: load images, apply manifests, run the README's file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import Nodes

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/01-digits/mpijob.yaml"
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The images' archives, packed from a wheel of this tree."""
    out = tmp_path_factory.mktemp("images")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", out, ROOT], check=True)
    build = [sys.executable, ROOT / "tools/images/build.py", out, "--wheels", out, "--builder", "packer"]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(done.stderr)
    return [Path(line) for line in done.stdout.splitlines()]


@pytest.fixture
def kubectl(nodes: Nodes) -> Kubectl:
    """Run kubectl as an administrator; its output."""

    def run(*words: str) -> str:
        command = ["kubectl", "--kubeconfig", str(nodes.kubeconfig), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def operator(nodes: Nodes, archives: list[Path], kubectl: Kubectl) -> Iterator[None]:
    """The operator as docs/guides/operator.md installs it, with the images on the nodes."""
    for archive in archives:
        nodes.load(archive)
    kubectl("apply", "-f", str(ROOT / "deploy/operator.yaml"))
    try:
        kubectl("-n", "mpi-operator", "rollout", "status", "deployment/gangline-operator", "--timeout=100s")
        yield
    finally:
        kubectl("delete", "-f", str(ROOT / "deploy/operator.yaml"), "--ignore-not-found")


def test_the_readmes_file_runs_on_what_the_guide_installs(operator: None, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(EXAMPLE))
    try:
        kubectl("wait", "mpijob/digits", "--for=condition=Succeeded", "--timeout=100s")
        log = kubectl("logs", "-l", "training.kubeflow.org/job-role=launcher", "--tail=-1")
    finally:
        kubectl("delete", "-f", str(EXAMPLE))

    assert "parameters identical on 4 ranks after every epoch" in log
