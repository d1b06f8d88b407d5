"""Which pods of JobSets and LeaderWorkerSets are one gang.

Expected values come from the controllers and webhooks of JobSet v0.11.1 and LeaderWorkerSet v0.8.0.
"""

from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.resources import JOB_SETS, LEADER_WORKER_SETS
from gangline.workloads.workload_sets import NO_GANG, WorkloadSets

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
BY_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
LEADER_FIRST = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def pod(labels: dict[str, str], scheduler: str = "ours", phase: str = "Pending", **annotations: str) -> Pod:
    value: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "team", "labels": labels, "annotations": annotations},
        "spec": {"containers": [], "schedulerName": scheduler},
        "status": {"phase": phase},
    }
    return msgspec.convert(value, Pod)


def replicated(name: str, replicas: int, parallelism: int = 1, **more: Any) -> dict[str, Any]:
    scheduler = more.pop("scheduler", "ours")
    completions = {"completions": more.pop("completions")} if "completions" in more else {}
    template = {"spec": {"schedulerName": scheduler, "containers": []}}
    spec = {"parallelism": parallelism, **completions, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def job_set(*jobs: dict[str, Any], **spec: Any) -> WorkloadSets:
    sets = WorkloadSets()
    meta = {"name": "train", "namespace": "team"}
    sets.take(JOB_SETS, [{"metadata": meta, "spec": {"replicatedJobs": list(jobs), **spec}}])
    return sets


def of_job_set(job: str = "workers", **more: Any) -> Pod:
    labels = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": job}
    return pod(labels, **more)


def test_all_jobs_of_a_job_set_are_one_gang():
    sets = job_set(replicated("driver", 1), replicated("workers", 2, 4))

    assert sets.gang_of(of_job_set()) == ("team/jobset/train", 9)
    assert sets.gang_of(of_job_set("driver")) == ("team/jobset/train", 9)


def test_no_more_pods_run_at_a_time_than_have_to_complete():
    assert job_set(replicated("workers", 2, 4, completions=3)).gang_of(of_job_set()).size == 6


@pytest.mark.parametrize(
    "sets",
    [
        job_set(
            replicated("driver", 2),
            replicated("workers", 2, 4),
            startupPolicy={"startupPolicyOrder": "InOrder"},
        ),
        job_set(
            replicated("driver", 2),
            replicated("workers", 2, 4, dependsOn=[{"name": "driver", "status": "Ready"}]),
        ),
    ],
    ids=["startupPolicy", "dependsOn"],
)
def test_jobs_that_start_one_after_another_are_gangs_of_their_own(sets: WorkloadSets):
    assert sets.gang_of(of_job_set()) == ("team/jobset/train/workers", 8)
    assert sets.gang_of(of_job_set("driver")) == ("team/jobset/train/driver", 2)


def test_pods_that_are_made_once_another_has_a_node_are_no_gang():
    sets = job_set(replicated("workers", 2, 4))

    assert sets.gang_of(of_job_set(**{EXCLUSIVE: "rack"})) == NO_GANG
    assert sets.gang_of(of_job_set(**{EXCLUSIVE: "rack", BY_SELECTOR: "true"})).size == 8


def test_pods_of_another_scheduler_do_not_count():
    sets = job_set(replicated("driver", 1, scheduler="theirs"), replicated("workers", 2, 4))

    assert sets.gang_of(of_job_set()).size == 8
    assert sets.gang_of(of_job_set("driver", scheduler="theirs")) == NO_GANG


def test_a_set_that_is_not_known_makes_no_gang_and_one_that_a_pod_names_itself_wins():
    assert WorkloadSets().gang_of(of_job_set()) == NO_GANG

    sets = job_set(replicated("workers", 2, 4))
    assert sets.gang_of(of_job_set(**{"gangline.dev/gang-size": "3"})) == NO_GANG

    sets.drop(JOB_SETS, {"metadata": {"name": "train", "namespace": "team"}})
    assert sets.gang_of(of_job_set()) == NO_GANG


def test_a_pod_that_has_succeeded_keeps_its_place():
    sets = job_set(replicated("workers", 2, 4))

    assert sets.succeeded_gang(of_job_set(phase="Succeeded")) == "team/jobset/train"
    assert sets.succeeded_gang(of_job_set(phase="Running")) == ""


def groups(size: int = 4, **spec: Any) -> WorkloadSets:
    sets = WorkloadSets()
    template = {"size": size, "workerTemplate": {"spec": {"schedulerName": "ours"}}}
    meta = {"name": "serve", "namespace": "team"}
    sets.take(LEADER_WORKER_SETS, [{"metadata": meta, "spec": {"leaderWorkerTemplate": template, **spec}}])
    return sets


def of_group(worker: int, group: str = "1", **more: Any) -> Pod:
    prefix = "leaderworkerset.sigs.k8s.io"
    names = {f"{prefix}/name": "serve", f"{prefix}/group-index": group, f"{prefix}/worker-index": str(worker)}
    return pod(names, **more)


@pytest.mark.parametrize("worker", [0, 3])
def test_leader_and_workers_of_a_group_are_one_gang(worker: int):
    assert groups().gang_of(of_group(worker)) == ("team/leaderworkerset/serve/1", 4)
    assert groups(startupPolicy="LeaderCreated").gang_of(of_group(worker, "2")).key.endswith("/serve/2")


@pytest.mark.parametrize(
    ("spec", "notes"),
    [({"startupPolicy": "LeaderReady"}, {}), ({}, {LEADER_FIRST: "rack"})],
    ids=["ready", "placed"],
)
def test_workers_that_are_made_after_their_leader_are_a_gang_without_it(spec: Any, notes: Any):
    assert groups(**spec).gang_of(of_group(0, **notes)) == NO_GANG
    assert groups(**spec).gang_of(of_group(1, **notes)) == ("team/leaderworkerset/serve/1", 3)


def test_the_size_is_that_with_which_the_pod_was_made():
    made_before = of_group(1, **{"leaderworkerset.sigs.k8s.io/size": "2"})

    assert groups(size=8).gang_of(made_before).size == 2
