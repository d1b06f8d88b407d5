"""A cluster that cannot be had as asked for says so at once and leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "08-pytorchjob" / "pytorchjob.yaml"


def test_plain_processes_run_a_job_without_any_namespace(fresh, tmp_path):
    up = fresh("up", "--isolation", "plain")
    assert "isolation `plain`" in up.stderr
    (tmp_path / "show.py").write_text(
        "import os\nprint(os.environ['MASTER_ADDR'], os.environ['RANK'], flush=True)\n"
    )
    result = fresh("run", "-n", "2", "--nodes", "2", "--", "python3", "show.py", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["127.0.0.1 0", "[1] 127.0.0.1 1"]


def test_plain_processes_of_a_pytorchjob_find_their_master(fresh):
    assert fresh("up", "--isolation", "plain").returncode == 0
    result = fresh("run", str(EXAMPLE))
    assert result.returncode == 0, result.stderr
    assert "rank 0 of 3" in result.stdout
    assert "the ranks add up to 3" in result.stdout


def test_another_isolation_than_that_of_the_running_cluster_is_refused(fresh):
    assert fresh("up", "--isolation", "plain").returncode == 0
    result = fresh("up", "--isolation", "user")
    assert result.returncode == 2
    assert "gangline down" in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may have its own network")
def test_an_isolation_that_does_not_work_here_is_refused_at_once_and_forgotten(fresh):
    result = fresh("up", "--isolation", "network")
    assert result.returncode == 2
    assert "network" in result.stderr
    assert fresh("up").returncode == 0
