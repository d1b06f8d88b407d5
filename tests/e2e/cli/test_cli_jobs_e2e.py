"""Looking after jobs: apply, list, get, logs, delete."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def finished(gangline, pod_manifest):
    """A job that printed two lines and ended."""
    path = pod_manifest("done", "echo one; echo two")
    _, template = path.read_text().split("spec:\n", 1)
    body = "".join(f"    {line}\n" for line in template.splitlines())
    head = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: done}\nspec:\n  template:\n    spec:\n"
    path.write_text(head + body)
    result = gangline("run", str(path))
    assert result.returncode == 0, result.stderr
    return path


def test_a_job_is_listed_shown_and_read(gangline, finished):
    listed = gangline("list").stdout.splitlines()
    assert listed[0].split()[:3] == ["NAME", "STATUS", "TRAINER"]
    assert any(line.split()[:3] == ["done", "SUCCEEDED", "JOB"] for line in listed)
    shown = gangline("get", "done").stdout
    assert "Status:     SUCCEEDED" in shown
    assert "IS_CHIEF" in shown
    assert gangline("logs", "done").stdout == "one\ntwo\n"
    assert gangline("logs", "done", "--tail", "1").stdout == "two\n"


def test_json_has_the_keys_that_arena_users_know(gangline, finished):
    report = json.loads(gangline("get", "done", "-o", "json", "-e").stdout)
    assert {
        "name",
        "namespace",
        "status",
        "duration",
        "trainer",
        "priority",
        "chiefName",
        "instances",
    } <= set(report)
    assert report["instances"][0]["chief"] is True
    assert [one["name"] for one in json.loads(gangline("list", "-o", "json").stdout)].count("done") == 1
    assert gangline("get", "done", "-o", "name").stdout == "job/done\n"


def test_deleting_takes_the_pods_along_and_unknown_names_are_an_error(gangline, finished):
    result = gangline("delete", "done", "nonesuch")
    assert result.returncode == 2
    assert result.stdout == "job/done deleted\n"
    assert "nonesuch" in result.stderr
    assert "job/done" not in gangline("list", "-o", "name").stdout
    assert gangline("delete", "done").returncode == 2
    assert json.loads(gangline("get", "done", "-o", "json").stdout)["status"] == "SUCCEEDED", "its run stays"


TWO_RANKS = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: two-ranks}
spec:
  slotsPerWorker: 2
  runPolicy: {cleanPodPolicy: Running}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: launcher
            image: gangline/base
            command: [mpirun, --allow-run-as-root, --bind-to, none, -n, "2"]
            args: [sh, -c, 'cd /etc; echo on; exec sleep 600']
    Worker:
      replicas: 1
      template:
        spec:
          containers: [{name: worker, image: gangline/base}]
"""


def test_a_program_beside_a_rank_has_its_variables_and_folder(gangline, tmp_path):
    file = tmp_path / "two-ranks.yaml"
    file.write_text(TWO_RANKS)
    process = gangline.start("run", str(file))
    assert [process.stdout.readline() for _ in range(2)] == ["on\n"] * 2

    show = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE in $(pwd)"; exit 3'
    beside = [gangline("exec", "two-ranks", "--rank", rank, "--", "sh", "-c", show) for rank in ("0", "1")]

    assert [done.stdout for done in beside] == ["0 of 2 in /etc\n", "1 of 2 in /etc\n"]
    assert [(done.stderr, done.returncode) for done in beside] == [("", 3), ("", 3)]
    assert gangline("delete", "two-ranks").returncode == 0
    process.communicate(timeout=60)
