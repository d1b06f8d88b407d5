"""What people see of a job, from objects as the API returns them."""

from datetime import UTC, datetime

from gangline.workloads.job_view import view_job
from gangline.workloads.pending import pending_reason_of

NOW = datetime(2026, 1, 1, 0, 2, 5, tzinfo=UTC)
CREATED = "2026-01-01T00:00:00Z"


def why_pending(pod, warnings=()):
    return str(pending_reason_of(pod, warnings) or "")


def pod(
    name, role="worker", phase="Running", *, index="0", node="node-0", state=None, conditions=None, gpus=0
):
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    status = {"phase": phase, "conditions": conditions or []}
    if state is not None:
        status["containerStatuses"] = [{"name": "main", "state": state, "restartCount": 2}]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": CREATED,
            "labels": {"training.kubeflow.org/job-role": role, "training.kubeflow.org/replica-index": index},
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
        "status": status,
    }


def mpijob(*conditions, gpus=0, **status):
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}}
    return {
        "kind": "MPIJob",
        "metadata": {"name": "pi", "namespace": "default", "uid": "u", "creationTimestamp": CREATED},
        "spec": {
            "runPolicy": {"schedulingPolicy": {"priorityClass": "high"}},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [{"name": "l"}]}}},
                "Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
            },
        },
        "status": {
            "conditions": [
                {"type": type_, "status": "True", "lastTransitionTime": CREATED} for type_ in conditions
            ],
            **status,
        },
    }


def test_a_running_job_with_its_chief_node_and_gpus():
    pods = [
        pod("pi-worker-1", index="1", gpus=2),
        pod("pi-launcher-x", "launcher", index=""),
        pod("pi-worker-0", gpus=2),
    ]
    view = view_job(mpijob("Created", "Running", gpus=2), pods, NOW)
    assert (view.status, view.trainer, view.duration_s, view.priority) == ("RUNNING", "MPIJOB", 125.0, "high")
    assert (view.gpus, view.gpus_allocated) == (4, 4)
    assert (view.primary, view.node) == ("pi-launcher-x", "node-0")
    assert [one.name for one in view.instances] == ["pi-launcher-x", "pi-worker-0", "pi-worker-1"]
    assert [one.is_primary for one in view.instances] == [True, False, False]


def test_a_job_that_says_running_while_a_pod_waits_is_pending():
    view = view_job(
        mpijob("Running"), [pod("pi-worker-0"), pod("pi-worker-1", phase="Pending", node="")], NOW
    )
    assert view.status == "PENDING"


def test_a_finished_job_counts_until_its_end():
    view = view_job(mpijob("Succeeded", completionTime="2026-01-01T00:00:30Z"), [], NOW)
    assert (view.status, view.duration_s, view.ended) == ("SUCCEEDED", 30.0, "2026-01-01T00:00:30Z")
    assert view.gpus_allocated is None


def test_why_a_pod_waits_is_said_in_one_line():
    unschedulable = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: cpu"}
    ]
    assert "fits on no node: 0/1 nodes: cpu" in why_pending(
        pod("x", phase="Pending", conditions=unschedulable)
    )
    image = {"waiting": {"reason": "ErrImageNeverPull", "message": "no such image"}}
    assert (
        why_pending(pod("x", phase="Pending", state=image))
        == "pod x, container main: ErrImageNeverPull: no such image"
    )
    assert why_pending(pod("x", phase="Pending", state={"waiting": {"reason": "ContainerCreating"}})) == ""
    assert why_pending(pod("x")) == ""
