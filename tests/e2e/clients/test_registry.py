"""`gangline image push` to a registry, from which a container runtime pulls."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pack import pack

pytestmark = pytest.mark.clients


@pytest.fixture
def registry(programs: Path, tmp_path: Path) -> Iterator[str]:
    """Distribution's registry on loopback; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config = tmp_path / "registry.yml"
    stored = {"filesystem": {"rootdirectory": str(tmp_path / "stored")}}
    config.write_text(json.dumps({"version": "0.1", "storage": stored, "http": {"addr": address}}))
    with (tmp_path / "registry.log").open("wb") as log:
        process = subprocess.Popen([programs / "registry", "serve", config], stdout=log, stderr=log)
    try:
        limit_s = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(f"http://{address}/v2/", timeout=5).close()
                break
            except urllib.error.URLError:
                assert process.poll() is None and time.monotonic() < limit_s, (
                    tmp_path / "registry.log"
                ).read_text()
        yield address
    finally:
        process.terminate()
        process.wait()


def push(archive: Path, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gangline", "image", "push", str(archive), name, "--plain-http"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An image of two layers whose command prints a file."""
    for layer in ("one", "two"):
        (tmp_path / layer).mkdir()
        (tmp_path / layer / layer).write_text(layer * 1000)
    pack("own:3.1", tmp_path / "own.tar", [tmp_path / "one", tmp_path / "two"], command=["cat", "/two"])
    return tmp_path / "own.tar"


def test_what_is_pushed_can_be_pulled(registry: str, archive: Path, tmp_path: Path) -> None:
    pushed = push(archive, f"{registry}/ml/own")

    assert pushed.returncode == 0, pushed.stderr
    name, _, digest = pushed.stdout.strip().partition("@")
    assert name == f"{registry}/ml/own:3.1"
    digests = [sys.executable, "-m", "gangline", "image", "digest", str(archive)]
    told = subprocess.run(digests, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == digest, "a manifest may name it before it is pushed"
    again = push(archive, f"{registry}/ml/own:latest")
    assert again.stdout.strip() == f"{registry}/ml/own:latest@{digest}", "the same archive is the same image"
    if not shutil.which("podman"):
        pytest.skip("nothing here pulls: podman is missing")
    named = f"{registry}/ml/own@{digest}"
    with tempfile.TemporaryDirectory() as storage:  # podman takes no path of more than 50 characters
        podman = ["podman", "--root", f"{storage}/r", "--runroot", f"{storage}/run", "--storage-driver=vfs"]
        subprocess.run([*podman, "pull", "-q", "--tls-verify=false", named], check=True)
        inspect = [*podman, "image", "inspect", named]
        shown = subprocess.run(inspect, check=True, capture_output=True, text=True)
    (image,) = json.loads(shown.stdout)
    assert image["Config"]["Cmd"] == ["cat", "/two"]
    assert len(image["RootFS"]["Layers"]) == 2


def test_a_registry_that_is_not_there_is_named(archive: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        pushed = push(archive, f"{address}/own")

    assert pushed.returncode == 3
    assert f"error[registry]: cannot push to {address}: " in pushed.stderr
    assert "Connection refused" in pushed.stderr
    assert pushed.stdout == ""
