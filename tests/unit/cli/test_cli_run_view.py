"""What `gangline run` says of a job's pods in plain lines."""

import re

from gangline.api.resources import MPIJOBS
from gangline.cli.run.view import PlainView
from gangline.client.run.follow import Follower
from gangline.workloads.job_start import attempt_in_words, job_ref

TITLE = "MPIJob default/pi"


def job(workers=1, over=""):
    replicas = {"Launcher": {}, "Worker": {"replicas": workers}}
    conditions = [{"type": over, "status": "True"}] if over else []
    return {
        "kind": "MPIJob",
        "apiVersion": "kubeflow.org/v2beta1",
        "metadata": {"name": "pi", "namespace": "default", "uid": "j1"},
        "spec": {"mpiReplicaSpecs": replicas},
        "status": {"conditions": conditions},
    }


def pod(role, phase, *, index="", uid="", age=0, gpus=0):
    name = f"pi-{role}-{index}" if index else f"pi-{role}"
    state = {"Running": {"running": {}}, "Pending": {"waiting": {"reason": "ContainerCreating"}}}
    labels = {"training.kubeflow.org/job-role": role, "training.kubeflow.org/job-name": "pi"}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or name,
            "labels": labels,
            "creationTimestamp": f"2026-01-01T00:00:0{age}Z",
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": role, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        },
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": role, "state": state.get(phase, {"terminated": {"exitCode": 0}})}],
        },
    }


def said(capsys):
    return [re.sub(r"\d+\.\d+ s", "T", line) for line in capsys.readouterr().err.splitlines()]


def test_the_start_is_said_once_all_pods_run(capsys):
    view = PlainView()

    view.pods_changed(job(), [pod("launcher", "Pending"), pod("worker", "Running", index="0")])
    assert said(capsys) == []
    for _ in range(2):
        view.pods_changed(job(), [pod("launcher", "Running"), pod("worker", "Running", index="0")])

    assert said(capsys) == [f"{TITLE}: 1 worker + launcher on 1 node, T"]


def test_a_job_that_is_over_at_the_next_look_has_its_start_said(capsys):
    view = PlainView(gpu_kind="real")
    worker = pod("worker", "Running", index="0", gpus=2)

    view.pods_changed(job(), [pod("launcher", "Pending"), worker])
    view.pods_changed(job(over="Succeeded"), [pod("launcher", "Pending"), worker])
    view.pods_changed(job(over="Succeeded"), [pod("launcher", "Succeeded"), worker])
    view.succeeded(job(over="Succeeded"), [pod("launcher", "Succeeded"), worker])

    assert said(capsys) == [f"{TITLE}: 1 worker + launcher on 1 node, 2 real GPUs, T"]


def test_the_start_is_said_when_the_end_of_the_job_is_seen_before_that_of_its_launcher(capsys):
    follower = Follower(None, MPIJOBS, job(), PlainView())
    follower._start_log = lambda pod: None

    follower._take_pods([pod("worker", "Running", index="0"), pod("launcher", "Pending")])
    follower._take_jobs([job(over="Succeeded")])
    follower._take_pods([pod("worker", "Running", index="0"), pod("launcher", "Succeeded")])

    assert said(capsys) == [f"{TITLE}: 1 worker + launcher on 1 node, T"]


def test_pods_that_went_before_they_were_seen_are_not_invented(capsys):
    view = PlainView()
    over = job(over="Succeeded")

    view.pods_changed(over, [pod("launcher", "Succeeded")])
    view.succeeded(over, [pod("launcher", "Succeeded")])

    assert said(capsys) == [f"{TITLE}: 1 of 2 pods seen before it was over"]


def test_a_pod_that_was_refused_has_not_started(capsys):
    refused = pod("worker", "Failed", index="0")
    refused["status"] = {"phase": "Failed", "reason": "OutOfcpu"}

    PlainView().pods_changed(job(), [pod("launcher", "Running"), refused])

    assert said(capsys) == []


def test_pods_that_were_replaced_count_once(capsys):
    view = PlainView(gpu_kind="simulated")
    pods = [
        pod("launcher", "Failed", uid="l1"),
        pod("launcher", "Running", index="x", uid="l2", age=1),
        pod("worker", "Failed", index="0", uid="w1", gpus=2),
        pod("worker", "Running", index="0", uid="w2", age=1, gpus=2),
    ]

    view.pods_changed(job(), pods)

    assert said(capsys) == [f"{TITLE}: 1 worker + launcher on 1 node, 2 simulated GPUs, T"]
    assert view.gpus_of(job_ref(job())) == "2 simulated GPUs"


def test_a_launcher_that_starts_again_says_after_which_failure():
    first, second, third = (pod("launcher", "Failed", uid=f"l{age}", age=age) for age in range(3))
    for one, code in ((first, 7), (second, 9)):
        one["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = code
    third["metadata"]["name"] = "pi-launcher-x"
    tried = [third, first, second]

    assert attempt_in_words(job(), tried, first) == ""
    assert attempt_in_words(job(), tried, second).startswith(
        "pi-launcher failed with exit code 7; attempt 2 in"
    )
    assert (
        attempt_in_words(job(), tried, third)
        == "pi-launcher failed with exit code 9; attempt 3 in pod pi-launcher-x"
    )
