"""kubectl and an API server: the embedded one; a real one too when ``GANGLINE_TEST_KUBECONFIG`` names it.

kubectl keeps what it learned of a server on disk, so each test has a home and a cache folder of its own.
"""

import asyncio
import os
import shutil
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gangline.local.apiserver.server import ApiServer
from gangline.local.paths import ClusterPaths

COMMAND_TIMEOUT_S = 60


@dataclass
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str


class Kubectl:
    """Runs kubectl against one server, in a namespace of the test's own."""

    def __init__(self, kubeconfig: Path, home: Path, namespace: str, server: ApiServer | None) -> None:
        self.namespace = namespace
        self.server = server
        """The embedded server; None for a real one."""
        self._home = home
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(kubeconfig),
        }

    async def start(self, *arguments: str, stdin: bytes | None = None) -> asyncio.subprocess.Process:
        """Start a command."""
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            f"--cache-dir={self._home}/cache",
            f"--namespace={self.namespace}",
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        if stdin is not None:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
        return process

    async def run(self, *arguments: str, stdin: str | None = None) -> Outcome:
        """Run a command to its end."""
        process = await self.start(*arguments, stdin=None if stdin is None else stdin.encode())
        out, err = await asyncio.wait_for(process.communicate(), COMMAND_TIMEOUT_S)
        return Outcome(process.returncode or 0, out.decode(), err.decode())

    async def ok(self, *arguments: str, stdin: str | None = None) -> str:
        """Run a command that must succeed and return what it prints."""
        outcome = await self.run(*arguments, stdin=stdin)
        assert outcome.code == 0, f"kubectl {' '.join(arguments)}: {outcome.err}"
        return outcome.out


REAL_KUBECONFIG = os.environ.get("GANGLINE_TEST_KUBECONFIG")
"""Kubeconfig of a real API server; the tests make namespaces, a node and a CRD there."""


@pytest.fixture(params=["embedded", "real"] if REAL_KUBECONFIG else ["embedded"])
async def kubectl(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Kubectl]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    home = tmp_path / "kube-home"
    home.mkdir()
    if request.param == "real":
        assert REAL_KUBECONFIG
        namespace = f"gangline-{uuid.uuid4().hex[:8]}"
        runner = Kubectl(Path(REAL_KUBECONFIG), home, namespace, None)
        await runner.ok("create", "namespace", namespace)
        yield runner
        await runner.ok("delete", "namespace", namespace, "--wait=false")
        return
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    server = ApiServer(ClusterPaths.of("test"))
    await server.start()
    yield Kubectl(server.paths.kubeconfig, home, "default", server)
    await server.stop()
