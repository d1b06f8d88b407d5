"""Records in a pod's log become a bar on a terminal, on whichever cluster the pod runs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

LIMIT_S = 60


def record(**fields: object) -> str:
    return "@gangline " + json.dumps(fields).replace(" ", "")


LINES = [
    "epoch 1",
    "[1,0]<stdout>:" + record(kind="progress", step=250, steps=1000, rate=10.5, unit="images", eta_s=130),
    record(kind="silence", rank=3, node="b", step=250, for_s=30, waiting=7),
    "gangline.train: rank 3 on b is still in step 251 after 30 s; 7 other ranks wait for it",
    "done",
]
SCRIPT = "; ".join(f"echo '{line}'" for line in LINES)


def pod(folder: Path, name: str) -> Path:
    """Write a Pod that prints the lines, and return the file."""
    container = {"name": "main", "image": "gangline/base", "command": ["sh", "-c", SCRIPT]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
    return path


def on_a_terminal(*words: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run one command on a terminal of 120 columns, and return its exit code and all that was drawn."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gangline", *words],
        env=environment,
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    )
    os.close(theirs)
    drawn = b""
    with suppress(OSError):  # the terminal is gone with its last user
        while data := os.read(ours, 65536):
            drawn += data
    os.close(ours)
    return process.wait(LIMIT_S), drawn.decode()


@pytest.fixture
def elsewhere(gangline, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user who knows the cluster by its kubeconfig alone."""
    assert gangline("up").returncode == 0
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(Path(gangline("kubeconfig", "--path").stdout.strip()).read_text())
    return gangline.environment | {"GANGLINE_HOME": str(tmp_path / "none"), "KUBECONFIG": str(kubeconfig)}


def context_of(environment: dict[str, str]) -> str:
    words = ["kubectl", "config", "current-context"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_bar_is_drawn_on_a_cluster_of_a_kubeconfig(
    gangline, elsewhere: dict[str, str], tmp_path: Path
) -> None:
    manifest = pod(tmp_path, "barred")
    context = context_of(elsewhere)

    for words in (["run", str(manifest)], ["logs", "-f", "pod/barred"]):
        code, drawn = on_a_terminal(*words, "--context", context, environment=elsewhere)

        assert code == 0, drawn
        assert "step 250/1000  10.5 images/s  ETA 2m10s" in drawn
        assert "step 250/1000  waits for rank 3 on b" in drawn
        assert "@gangline" not in drawn
        assert "[1,0]" not in drawn
        assert "rank 3 on b is still in step 251 after 30 s; 7 other ranks wait for it\r\n" in drawn
        # No cluster of its own; runs of other clusters are kept.
        assert [path.name for path in Path(elsewhere["GANGLINE_HOME"]).iterdir()] == ["_servers"]
    gangline("delete", "pod/barred")


def test_log_in_a_pipe_has_no_bar(gangline, tmp_path: Path) -> None:
    assert gangline("run", str(pod(tmp_path, "piped"))).stdout.splitlines()[-1] == "done"

    logs = gangline("logs", "-f", "pod/piped")
    assert "step 250/1000" not in logs.stdout + logs.stderr
    gangline("delete", "pod/piped")
