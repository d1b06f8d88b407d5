"""The table of kinds: what it says of each, and that another entry is all that a new kind needs."""

from datetime import UTC, datetime

import pytest

from gangline.api.resources import Resource
from gangline.cli.options.job_types import qualified
from gangline.workloads import kinds
from gangline.workloads.capacity import gang_requests
from gangline.workloads.gpu_demand import GpuDemand
from gangline.workloads.job_state import (
    expected_pods,
    is_suspended,
    pods_by_job,
    primary_pods,
    priority_class,
    requested_gpus,
)
from gangline.workloads.job_view import view_job
from gangline.workloads.kinds import (
    KINDS,
    Replicas,
    WorkloadKind,
    find_kind,
    kind_called,
    kind_of,
    pod_templates,
)

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
CREATED = "2026-01-01T00:00:00Z"


def pod_spec(gpus=0, **more):
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    return {"containers": [{"name": "c", "image": "i", "resources": resources}], **more}


def template(gpus=0, **more):
    return {"spec": pod_spec(gpus, **more)}


def obj(kind, spec, name="j", **metadata):
    metadata = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": CREATED, **metadata}
    return {"kind": kind, "metadata": metadata, "spec": spec}


def pod(name, **labels):
    spec = {**pod_spec(), "nodeName": "n"}
    return obj("Pod", spec, name, labels=labels) | {"status": {"phase": "Running"}}


MPIJOB = obj(
    "MPIJob",
    {
        "runPolicy": {"suspend": True, "schedulingPolicy": {"priorityClass": "high"}},
        "mpiReplicaSpecs": {
            "Launcher": {"template": template()},
            "Worker": {"replicas": 3, "template": template(2)},
        },
    },
)
JOB = obj("Job", {"parallelism": 2, "template": template(1, priorityClassName="low")})
DEPLOYMENT = obj(
    "Deployment", {"replicas": 4, "selector": {"matchLabels": {"app": "x"}}, "template": template(8)}
)
POD = obj("Pod", pod_spec(1, priorityClassName="mid"))


NOT_OTHERS = (
    "training.kubeflow.org/operator-name notin (pytorchjob-controller,tfjob-controller,trainjob-controller)"
)


@pytest.mark.parametrize(
    ("found", "pods", "gpus", "priority", "suspended", "selector"),
    [
        (MPIJOB, 4, 6, "high", True, (f"training.kubeflow.org/job-name=j,{NOT_OTHERS}", "")),
        (JOB, 2, 2, "low", False, ("batch.kubernetes.io/job-name=j", "")),
        (DEPLOYMENT, 4, 32, "", False, ("app=x", "")),
        (POD, 1, 1, "mid", False, ("", "metadata.name=j")),
    ],
)
def test_what_a_workload_asks_for(found, pods, gpus, priority, suspended, selector):
    assert (expected_pods(found), requested_gpus(found)) == (pods, gpus)
    assert (priority_class(found), is_suspended(found)) == (priority, suspended)
    assert kind_of(found).pod_selector(found) == selector


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("mj", "MPIJob"),
        ("MPIJobs", "MPIJob"),
        ("mpijobs.kubeflow.org", "MPIJob"),
        ("jobs", "Job"),
        ("pods", "Pod"),
        ("po", "Pod"),
        ("deploy", "Deployment"),
        ("deployments.apps", "Deployment"),
        ("sts", "StatefulSet"),
        ("daemonsets", "DaemonSet"),
        ("rs", "ReplicaSet"),
    ],
)
def test_users_may_call_a_kind_by_any_of_its_words(word, name):
    found = kind_called(word)
    assert found is not None and found.name == name


def test_other_words_and_kinds_are_none():
    assert kind_called("service") is None and find_kind("Service") is None
    with pytest.raises(KeyError):
        kind_of({"kind": "Service"})


def test_no_word_stands_for_two_kinds():
    words = [word for kind in KINDS for word in kind.words]
    assert len(words) == len(set(words))


def test_pods_find_their_jobs():
    own = pod("j-worker-0", **{"training.kubeflow.org/job-name": "j"})
    of_job = pod("j-abc", **{"batch.kubernetes.io/job-name": "j"})
    elsewhere = pod("j-worker-0", **{"training.kubeflow.org/job-name": "j"})
    elsewhere["metadata"]["namespace"] = "other"
    other = pod("k", **{"training.kubeflow.org/job-name": "k"})
    of_another_kind = pod(
        "j-master-0",
        **{
            "training.kubeflow.org/job-name": "j",
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
        },
    )

    found = pods_by_job([MPIJOB, JOB, POD], [own, of_job, elsewhere, other, of_another_kind, POD])

    assert found == [[own], [of_job], [POD]]


@pytest.fixture
def ring_job(monkeypatch):
    """A kind that nobody has heard of, with a leader and members."""

    def replicas(job):
        spec = job["spec"]
        return [Replicas("leader", 1, spec["leader"]), Replicas("member", spec["members"], spec["member"])]

    kind = WorkloadKind(
        resource=Resource("example.com", "v1", "ringjobs", "RingJob"),
        words=("ringjob", "ring"),
        starts_whole=True,
        primary="leader",
        maker="its operator",
        spec=lambda job: job["spec"],
        replicas=replicas,
        templates=lambda job: [(f"spec.{role}.", job["spec"][role]) for role in ("leader", "member")],
        pod_labels=lambda job: {"example.com/ring": job["metadata"]["name"]},
    )
    monkeypatch.setattr(kinds, "KINDS", [*KINDS, kind])
    return obj("RingJob", {"leader": template(), "member": template(4), "members": 5})


def test_a_new_kind_is_one_entry(ring_job):
    labels = {"example.com/ring": "j"}
    members = [
        pod("j-leader", **labels, **{kinds.ROLE_LABEL: "leader"}),
        pod("j-member-0", **labels, **{kinds.ROLE_LABEL: "member"}),
    ]
    view = view_job(ring_job, members, NOW)

    assert qualified("j", "RingJob") == "ringjob/j" and qualified("rings/j", "RingJob") == "ringjob/j"
    assert pods_by_job([ring_job], [*members, pod("x")]) == [members]
    assert [one["metadata"]["name"] for one in primary_pods(ring_job, members)] == ["j-leader"]
    assert (view.trainer, view.status, view.gpus, view.primary) == ("RINGJOB", "RUNNING", 20, "j-leader")
    assert [path for path, _ in pod_templates(ring_job)] == ["spec.leader.", "spec.member."]
    demand = GpuDemand.of(ring_job)
    assert (demand.pods, demand.each, demand.beside) == (5, 4, 0)


def test_a_new_kind_that_starts_whole_is_refused_whole(ring_job):
    assert [count for _, count in gang_requests(ring_job)] == [1, 5]
