"""A cluster that cannot be had as asked for says so at once and leaves nothing."""

from __future__ import annotations

import json
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


def test_plain_processes_of_a_tfjob_reach_one_another(fresh, tmp_path):
    """Each opens the port that TF_CONFIG gives it, and worker 0 hears from all."""
    (tmp_path / "tf.py").write_text(TF_REPLICA)
    container = {
        "name": "tensorflow",
        "image": "gangline/base",
        "command": ["python3", str(tmp_path / "tf.py")],
    }
    replicas = {
        role: {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
        for role, count in (("PS", 1), ("Worker", 3))
    }
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "cnn"}}
    (tmp_path / "job.yaml").write_text(json.dumps({**job, "spec": {"tfReplicaSpecs": replicas}}))
    assert fresh("up", "--isolation", "plain").returncode == 0

    result = fresh("run", str(tmp_path / "job.yaml"))

    assert result.returncode == 0, result.stderr
    assert "heard ps 0, worker 1, worker 2" in result.stdout


TF_REPLICA = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
host, port = config["cluster"][role][index].split(":")
server = socket.create_server((host, int(port)))
if (role, index) == ("worker", 0):
    heard = []
    while len(heard) < 3:
        peer, _ = server.accept()
        heard.append(peer.makefile().read())
    print("heard", ", ".join(sorted(heard)), flush=True)
else:
    host, port = config["cluster"]["worker"][0].split(":")
    until = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection((host, int(port))) as first:
                first.sendall(f"{role} {index}".encode())
            break
        except OSError:
            if time.monotonic() > until:
                raise
"""


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
