"""What kubectl, the server's tables and ``gangline get`` show of a pod: STATUS, READY, RESTARTS."""

from datetime import UTC, datetime

import pytest

from gangline.api.resources import PODS
from gangline.cluster.server.tables.tables import to_table
from gangline.workloads.job_view import view_pod

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
RUNNING = {"running": {"startedAt": "2026-01-02T11:00:00Z"}}


def ended(code=0, **more):
    return {"terminated": {"exitCode": code, **more}}


def waiting(reason=None):
    return {"waiting": {"reason": reason} if reason else {}}


def make_pod(
    *states, phase="Running", init=(), sidecar=False, started=True, ready=True, conditions=(), **more
):
    """Return a pod with one container for each state; ``init`` are the states of init containers."""
    metadata = {"name": "p", "creationTimestamp": "2026-01-02T11:55:00Z"}
    if more.pop("deleting", False):
        metadata["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    init_container = {"name": "i0", "restartPolicy": "Always"} if sidecar else {"name": "i0"}
    spec = {"containers": [{"name": f"c{n}"} for n in range(max(1, len(states)))]}
    if init:
        spec["initContainers"] = [init_container, *({"name": f"i{n}"} for n in range(1, len(init)))]
    status = {
        "phase": phase,
        "conditions": [{"type": type_, "status": status} for type_, status in conditions],
        "containerStatuses": [
            {"name": f"c{n}", "ready": ready and "running" in state, "restartCount": 0, "state": state}
            for n, state in enumerate(states)
        ],
        "initContainerStatuses": [
            {
                "name": f"i{n}",
                "ready": True,
                "started": started and "running" in state,
                "restartCount": 0,
                "state": state,
            }
            for n, state in enumerate(init)
        ],
        **more,
    }
    return {"metadata": metadata, "spec": spec, "status": status}


def cells(pod):
    return to_table(PODS, [pod], now=NOW)["rows"][0]["cells"]


@pytest.mark.parametrize(
    ("pod", "want_ready", "want_status"),
    [
        (make_pod(phase="Pending"), "0/1", "Pending"),
        (make_pod(waiting("ContainerCreating"), phase="Pending"), "0/1", "ContainerCreating"),
        (make_pod(waiting("ImagePullBackOff"), phase="Pending"), "0/1", "ImagePullBackOff"),
        (make_pod(RUNNING), "1/1", "Running"),
        (make_pod(RUNNING, ready=False), "0/1", "Running"),
        (make_pod(waiting("CrashLoopBackOff")), "0/1", "CrashLoopBackOff"),
        (make_pod(ended(0, reason="Completed"), phase="Succeeded"), "0/1", "Completed"),
        (make_pod(ended(1, reason="Error"), phase="Failed"), "0/1", "Error"),
        (make_pod(ended(137, reason="OOMKilled"), phase="Failed"), "0/1", "OOMKilled"),
        (make_pod(ended(3), phase="Failed"), "0/1", "ExitCode:3"),
        (make_pod(ended(0, signal=9), phase="Failed"), "0/1", "Signal:9"),
        (make_pod(ended(1, reason="Error"), RUNNING), "1/2", "Error"),
        (make_pod(ended(0, reason="Completed"), RUNNING, conditions=[("Ready", "True")]), "1/2", "Running"),
        (make_pod(ended(0, reason="Completed"), RUNNING), "1/2", "NotReady"),
        (make_pod(waiting("PodInitializing"), init=[RUNNING], phase="Pending"), "0/1", "Init:0/1"),
        (make_pod(waiting("x"), init=[ended(0), waiting("PodInitializing")]), "0/1", "Init:1/2"),
        (make_pod(waiting("x"), init=[ended(1, reason="Error")]), "0/1", "Init:Error"),
        (make_pod(waiting("x"), init=[ended(2)]), "0/1", "Init:ExitCode:2"),
        (make_pod(waiting("x"), init=[ended(1, signal=15)]), "0/1", "Init:Signal:15"),
        (make_pod(waiting("x"), init=[waiting("CrashLoopBackOff")]), "0/1", "Init:CrashLoopBackOff"),
        (make_pod(RUNNING, init=[ended(0)]), "1/1", "Running"),
        (make_pod(RUNNING, init=[RUNNING], sidecar=True), "2/2", "Running"),
        (make_pod(RUNNING, deleting=True), "1/1", "Terminating"),
        (make_pod(ended(0, reason="Completed"), phase="Succeeded", deleting=True), "0/1", "Completed"),
        (make_pod(RUNNING, deleting=True, reason="NodeLost"), "1/1", "Unknown"),
        (make_pod(phase="Failed", reason="Evicted"), "0/1", "Evicted"),
        (make_pod(phase="Unknown"), "0/1", "Unknown"),
        (make_pod(phase="Unknown", reason="NodeLost"), "0/1", "NodeLost"),
        (make_pod(waiting("ErrImageNeverPull"), phase="Pending"), "0/1", "ErrImageNeverPull"),
        (make_pod(waiting(), phase="Pending"), "0/1", "Pending"),
        (make_pod(RUNNING, RUNNING), "2/2", "Running"),
        (make_pod(RUNNING, waiting("CrashLoopBackOff")), "1/2", "CrashLoopBackOff"),
        (make_pod(waiting("ImagePullBackOff"), waiting("CrashLoopBackOff")), "0/2", "ImagePullBackOff"),
        (make_pod(ended(0), RUNNING), "1/2", "ExitCode:0"),
        (make_pod(RUNNING, ended(0, reason="Completed"), conditions=[("Ready", "True")]), "1/2", "Running"),
        (make_pod(RUNNING, init=[RUNNING], sidecar=True, ready=False), "1/2", "Running"),
        (
            make_pod(waiting("PodInitializing"), init=[RUNNING], sidecar=True, started=False),
            "0/2",
            "Init:0/1",
        ),
        (make_pod(waiting("x"), init=[waiting()]), "0/1", "Init:0/1"),
        (make_pod(waiting("x"), init=[RUNNING, waiting()], sidecar=True), "1/2", "Init:1/2"),
        (make_pod(RUNNING, init=[ended(1)], conditions=[("Initialized", "True")]), "1/1", "Init:ExitCode:1"),
        (make_pod(waiting("x"), init=[RUNNING], deleting=True), "0/1", "Terminating"),
        (make_pod(ended(1, reason="Error"), phase="Failed", deleting=True), "0/1", "Error"),
    ],
)
def test_pod_shows_ready_and_status(pod, want_ready, want_status):
    assert [want_ready, want_status] == cells(pod)[1:3]
    assert view_pod(pod, NOW, is_primary=False).status == want_status


def test_gated_pod_says_so():
    pod = make_pod(phase="Pending")
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]

    assert cells(pod)[2] == "SchedulingGated"


def test_restarts_tell_when_the_last_one_was():
    pod = make_pod(RUNNING)
    pod["status"]["containerStatuses"][0] |= {
        "restartCount": 3,
        "lastState": {"terminated": {"finishedAt": "2026-01-02T11:50:00Z"}},
    }

    assert cells(pod)[3:5] == ["3 (10m ago)", "5m"]


def test_wide_columns_show_where_the_pod_is():
    pod = make_pod(RUNNING, podIP="10.0.0.1", nominatedNodeName="m", conditions=[("gate", "True")])
    pod["spec"] |= {
        "nodeName": "n",
        "readinessGates": [{"conditionType": "gate"}, {"conditionType": "other"}],
    }

    assert cells(pod)[5:] == ["10.0.0.1", "n", "m", "1/2"]
    assert cells(make_pod())[5:] == ["<none>"] * 4


def test_finished_pod_carries_the_mark_of_completion():
    row = to_table(PODS, [make_pod(ended(0), phase="Succeeded")], now=NOW)["rows"][0]

    assert row["conditions"][0]["type"] == "Completed"
