"""The operator under test as a process: ours, or the one that ``OPERATOR_COMMAND`` starts.

The command line gets options of upstream, which ours takes as well. Operators lead at once, because each has
a namespace of its own for its lease.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

STOP_LIMIT_S = 60.0
COMMAND = os.environ.get("OPERATOR_COMMAND", "")


def changed(reason: str) -> pytest.MarkDecorator:
    """Mark a test of an outcome that is another one elsewhere, on purpose."""
    return pytest.mark.skipif(bool(COMMAND), reason=f"an outcome of ours alone: {reason}")


class OperatorProcess:
    """A running operator; a context manager that ends it.

    Args:
        kubeconfig: of an administrator.
        namespace: the only one that it looks at; its lease lies there too.
        log: file for what it prints.
        options: more of its options.
    """

    def __init__(self, kubeconfig: Path, namespace: str, log: Path, *options: str) -> None:
        command = shlex.split(COMMAND) or [sys.executable, "-m", "gangline", "operator"]
        command += ["--kubeConfig", str(kubeconfig), "--namespace", namespace, "--lock-namespace", namespace]
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*command, *options],
                env=os.environ | {"KUBECONFIG": str(kubeconfig)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def __enter__(self) -> OperatorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ended(self) -> bool:
        """Return whether it ended by itself."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Ask it to end, and insist after a while."""
        self._process.terminate()
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
