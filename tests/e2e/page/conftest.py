"""A cluster with simulated GPUs, its page, and a browser that looks at it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

LIMIT_MS = 20_000
MANIFEST = Path(__file__).resolve().parents[3] / "deploy" / "page.yaml"
OWN = ("-n", "gangline-page")
NAME = "gangline.example.com"
TRAINING = """
import json, os, sys, time
rank, steps = int(os.environ["RANK"]), 10_000
for step in range(steps):
    if rank == 0:
        record = {"kind": "progress", "step": step, "steps": steps, "loss": 2 / (1 + step)}
        record |= {"rate": 100.0, "unit": "images"}
        print("@gangline " + json.dumps(record), flush=True)
    print(f"rank {rank} step {step} <b>text</b>", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium without a window."""
    sync = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; `make test-page` does it"
    )
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on the PATH; Debian's package is called so")
    with sync.sync_playwright() as playwright:
        rules = f"--host-resolver-rules=MAP {NAME} 127.0.0.1"
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", rules])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Any]) -> Iterator[Any]:
    """Two simulated DGX-1."""
    with start_cluster("--nodes", "2", "--simulate-gpus", "8", "--gpu-model", "v100-dgx1") as found:
        yield found


@pytest.fixture(scope="module")
def served(cluster: Any) -> Iterator[str]:
    """The address of the Deployment's page, through a port that kubectl forwards."""
    with forwarded(cluster) as found:
        yield found


@contextlib.contextmanager
def forwarded(cluster: Any, *arguments: str) -> Iterator[str]:
    """Yield the address of the Deployment's page, with these arguments behind its own."""
    cluster.kubectl("apply", "-f", str(MANIFEST))
    place = "/spec/template/spec/containers/0/args/-"
    patch = [{"op": "add", "path": place, "value": one} for one in arguments]
    deployment = ("deployment", "gangline-page")
    cluster.kubectl(*OWN, "patch", *deployment, "--type", "json", "-p", json.dumps(patch))
    cluster.kubectl(*OWN, "rollout", "status", "/".join(deployment), "--timeout=60s")
    words = ("kubectl", *OWN, "port-forward", "service/gangline-page", ":80")
    with cluster.start(*words) as forward:
        # Forwarding from 127.0.0.1:41643 -> 8080
        found = re.search(r"127\.0\.0\.1:\d+", forward.stdout.readline())
        assert found
        yield f"http://{found[0]}/"


@pytest.fixture(scope="module")
def tokens(cluster: Any) -> dict[str, str]:
    """A user who may change what is in namespace team, and one who may look at it."""
    cluster.kubectl("create", "namespace", "team")
    found = {}
    for name, role in (("dev", "edit"), ("guest", "view")):
        cluster.kubectl("-n", "team", "create", "serviceaccount", name)
        words = ("rolebinding", name, f"--clusterrole={role}", f"--serviceaccount=team:{name}")
        cluster.kubectl("-n", "team", "create", *words)
        found[name] = cluster.kubectl("-n", "team", "create", "token", name).strip()
    container = {"name": "a", "image": "gangline/base", "command": ["sleep", "600"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "theirs", "namespace": "team"}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({**job, "spec": {"template": template}}))
    return found


@pytest.fixture
def view(cluster: Any, chromium: Any) -> Iterator[Any]:
    """The page, open; what its scripts complain of fails the test."""
    link = cluster.gangline("page", "--no-browser")
    assert link.returncode == 0, link.stderr
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(link.stdout.strip())
    yield page
    context.close()
    assert not problems


@pytest.fixture
def job(cluster: Any, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return a function that creates a job of a program and names it; they are deleted afterwards."""
    made = []

    def create(name: str, program: str = TRAINING, *, ranks: int = 2, gpus: int = 0) -> str:
        resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
        container = {
            "name": "pytorch",
            "image": "gangline/base",
            "command": ["python3", "-u", "-c", program],
            "resources": resources,
        }
        template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
        roles = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}}
        if ranks > 1:
            roles["Worker"] = {"replicas": ranks - 1, "template": template}
        document = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name},
            "spec": {"pytorchReplicaSpecs": roles},
        }
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document))
        done = cluster.gangline("apply", str(file))
        assert done.returncode == 0, done.stderr
        made.append(name)
        return name

    yield create
    for name in made:
        cluster.gangline("delete", f"pytorchjob/{name}")


def kill(pid: int) -> None:
    """End a process at once."""
    subprocess.run(["kill", "-9", str(pid)], check=True)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + LIMIT_MS / 1000
    while not condition():
        assert time.monotonic() < until, f"waited {LIMIT_MS} ms for {what}"
        time.sleep(0.05)


def is_running(word: str) -> bool:
    """Whether a program runs that has this argument."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in line.read_bytes().split(b"\0"):
                return True
    return False
