"""examples/03-pi: every rank names its host, and a host without a rank is a failure."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HEALTHY_WORKER = """              image: gangline/base:0.1.0
              volumeMounts:
                - {name: code, mountPath: /code}
          volumes:
            - name: code
              configMap: {name: pi-code}
---
"""


def run_alone(examples: Path, *hosts: str) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("needs an MPI")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_pml": "ob1"}
    command = [mpirun, "-n", "1", sys.executable, str(examples / "03-pi" / "pi.py"), *hosts]
    return subprocess.run(
        command, env=os.environ | root, capture_output=True, text=True, check=False, timeout=60
    )


def test_program_passes_when_every_host_has_a_rank(examples: Path) -> None:
    result = run_alone(examples, f"{socket.gethostname()}.pi.default.svc")

    assert result.returncode == 0, result.stderr
    assert "pi is approximately 3.14" in result.stdout


def test_program_fails_when_a_host_has_no_rank(examples: Path) -> None:
    result = run_alone(examples, socket.gethostname(), "pi-worker-1.pi.default.svc:1")

    assert result.returncode != 0
    assert "no rank ran on pi-worker-1" in result.stderr


def test_job_puts_one_rank_into_each_of_two_pods(gangline) -> None:
    result = gangline("run", "--nodes", "2", "examples/03-pi/mpijob.yaml")

    assert result.returncode == 0, result.stdout
    hosts = dict(re.findall(r"rank (\d) of 2 on (\S+)", result.stdout))
    assert hosts == {"0": "pi-worker-0", "1": "pi-worker-1"}
    assert "pi is approximately 3.14" in result.stdout


def test_job_fails_when_a_host_is_broken(gangline, examples: Path, tmp_path: Path) -> None:
    text = (examples / "03-pi" / "mpijob.yaml").read_text().replace("name: pi\n", "name: pi-broken\n")
    broken = HEALTHY_WORKER.replace(
        "gangline/base:0.1.0\n",
        "gangline/base:0.1.0\n"
        "              command: [sh, -c, 'test $(hostname) != pi-broken-worker-1 && exec sleep 600']\n",
    )
    assert HEALTHY_WORKER in text
    manifest = tmp_path / "mpijob.yaml"
    manifest.write_text(text.replace(HEALTHY_WORKER, broken))

    result = gangline("run", "--nodes", "2", str(manifest))

    assert result.returncode not in (0, 2, 70), result.stdout
    assert "pi-broken-worker-1" in result.stdout
