"""kubectl, for the embedded API server and a real one.

kubectl keeps what it learned of a server on disk, so each test has a home and a cache folder of its own.
"""

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gangline.cluster.server.server import ApiServer

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


@pytest.fixture
async def kubectl(api: Any, tmp_path: Path) -> Kubectl:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    home = tmp_path / "kube-home"
    home.mkdir()
    return Kubectl(api.kubeconfig, home, api.namespace, api.embedded)
