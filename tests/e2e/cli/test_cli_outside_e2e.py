"""What a user is told of a pod's way out of the machine, and of what a pod wrote that went with it."""

import pytest

from gangline.cluster.node.isolation import refusal_of

JOB = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: writes}
spec:
  slotsPerWorker: 2
  runPolicy: {cleanPodPolicy: Running}
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - name: launcher
            image: gangline/base
            command: [mpirun, -n, "2", sh, -c, "echo w > ~/m$OMPI_COMM_WORLD_RANK.pt"]
    Worker:
      replicas: 1
      template:
        spec:
          containers:
          - {name: worker, image: gangline/base, command: [/usr/sbin/sshd, -De]}
"""


@pytest.mark.root
@pytest.mark.skipif(bool(refusal_of("network")), reason="network isolation needs root")
def test_start_and_status_say_how_pods_reach_the_outside(fresh):
    up = fresh("up")
    status = fresh("status")

    assert "outside of this machine: pods reach it" in up.stderr, up.stderr
    assert "outside   pods reach it" in status.stdout


def test_run_ends_with_what_workers_wrote_that_went_with_them(gangline, tmp_path):
    manifest = tmp_path / "writes.yaml"
    manifest.write_text(JOB)

    result = gangline("run", str(manifest))
    events = gangline("get", "writes", "-e")

    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    (line,) = [line for line in lines if line.startswith("warning: pod writes-worker-0 wrote 4 B to ")]
    assert line.endswith("which is removed with the pod: mount a volume")
    assert "[WritesRemoved] wrote 4 B to " in events.stdout
