"""A cluster of a test's own, and what is typed against it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "published"
COMMAND_LIMIT_S = 180
JOB_LIMIT_S = 150
JOB_LABEL = "training.kubeflow.org/job-name"
ROLE_LABEL = "training.kubeflow.org/job-role"

ARENA = "from gangline.cli.app import arena; arena()"
"""What the entry point of that name runs."""

Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The images' archives, packed from a wheel of this tree."""
    out = tmp_path_factory.mktemp("images")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", out, ROOT], check=True)
    build = [sys.executable, ROOT / "tools/images/build.py", out, "--wheels", out, "--builder", "packer"]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(done.stderr)
    return [Path(line) for line in done.stdout.splitlines()]


class Cluster:
    """A one-machine cluster in a home of its own."""

    def __init__(self, home: Path) -> None:
        self._environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        self._environment["GANGLINE_HOME"] = str(home)
        self.files = home / "default"

    def up(self, *options: str) -> None:
        """Start it, or change it."""
        up = self.gangline("up", *options)
        assert up.returncode == 0, up.stderr
        self._environment["KUBECONFIG"] = self.gangline("kubeconfig", "--path").stdout.strip()

    def gangline(self, *words: str) -> Done:
        """Run one of our commands."""
        return self.run(sys.executable, "-m", "gangline", *words)

    def arena(self, *words: str) -> Done:
        """Run one command as the program `arena`."""
        return self.run(sys.executable, "-c", ARENA, *words)

    def try_kubectl(self, *words: str, stdin: str = "") -> Done:
        """Run kubectl, which may fail."""
        return self.run("kubectl", *words, stdin=stdin)

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl, which must not fail, and return what it prints."""
        done = self.try_kubectl(*words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def get(self, *words: str) -> Any:
        """Return objects as kubectl gets them."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def create(self, file: str) -> str:
        """Create what a published file holds, and return its name."""
        words = self.kubectl("create", "-f", str(FOLDER / file)).split()
        assert words[1:] == ["created"]
        return words[0].partition("/")[2]

    def job(self, file: str) -> str:
        """Create the job of a published file, wait until it has succeeded, and return its name."""
        name = self.create(file)
        limit = f"--timeout={JOB_LIMIT_S}s"
        waited = self.try_kubectl("wait", "--for=condition=Succeeded", f"mpijob/{name}", limit)
        assert waited.returncode == 0, f"{waited.stderr}{self.launcher_log(name)}"
        return name

    def launcher_log(self, job: str) -> str:
        """Return the log of a job's launcher, found by its labels."""
        selector = f"{JOB_LABEL}={job},{ROLE_LABEL}=launcher"
        return self.try_kubectl("logs", "-l", selector, "--tail=-1").stdout

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Start any program against it, and end it at the end of the block."""
        out = subprocess.PIPE
        with subprocess.Popen(words, env=self._environment, stdout=out, text=True) as program:
            try:
                yield program
            finally:
                program.terminate()

    def run(self, *words: str, stdin: str = "") -> Done:
        """Run any program against it."""
        return subprocess.run(
            words,
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_LIMIT_S,
        )


@pytest.fixture(scope="session")
def start_cluster() -> Callable[..., AbstractContextManager[Cluster]]:
    """Return a context in which a cluster started with these options runs."""

    @contextmanager
    def start(*options: str) -> Iterator[Cluster]:
        if shutil.which("kubectl") is None:
            pytest.skip("kubectl is not on the PATH")
        home = Path(tempfile.mkdtemp(prefix="gangline-published-"))
        cluster = Cluster(home)
        try:
            cluster.up(*options)
            yield cluster
        finally:
            cluster.gangline("down", "--purge")
            shutil.rmtree(home, ignore_errors=True)

    return start
