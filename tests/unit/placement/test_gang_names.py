"""Gangs of workloads without an object that says so: Jobs, JobSets and groups of a LeaderWorkerSet."""

import pytest
from gang_scenes import NOW, dgx, held, pod

from gangline.api.core import ObjectMeta, OwnerReference, Pod, PodStatus
from gangline.placement.cycle import schedule
from gangline.placement.snapshot import PodView, Snapshot
from gangline.workloads.gang_names import gang_of, succeeded_gang

JOBSET = {"jobset.sigs.k8s.io/jobset-name": "set", "batch.kubernetes.io/job-name": "set-workers-0"}
LWS = {"leaderworkerset.sigs.k8s.io/name": "llm", "leaderworkerset.sigs.k8s.io/group-index": "1"}


@pytest.mark.parametrize(
    ("labels", "size", "gang"),
    [
        (JOBSET, "8", "team/set"),
        (LWS, "4", "team/llm-1"),
        ({"batch.kubernetes.io/job-name": "job", "job-name": "job"}, "2", "team/job"),
        ({}, "2", "team/owner"),
        (JOBSET, "", ""),
        (LWS, "four", ""),
        (JOBSET | {"scheduling.x-k8s.io/pod-group": "named"}, "8", "team/named"),
    ],
)
def test_pods_of_a_workload_that_tell_a_size_are_a_gang(labels: dict[str, str], size: str, gang: str) -> None:
    owner = OwnerReference(kind="ReplicaSet", name="owner", uid="o", controller=True)
    notes = {"gangline.dev/gang-size": size} if size else {}
    metadata = ObjectMeta(
        name="p", namespace="team", labels=labels, annotations=notes, owner_references=(owner,)
    )

    assert gang_of(Pod(metadata=metadata)) == gang
    view = PodView.from_pod(Pod(metadata=metadata))
    assert (view.gang, view.gang_size) == (gang, int(size) if size.isdecimal() else 0)
    over = Pod(metadata=metadata, status=PodStatus(phase="Succeeded"))
    assert succeeded_gang(over) == (gang if size.isdecimal() else "")


def test_a_pod_that_is_made_anew_joins_those_that_have_succeeded() -> None:
    late = pod("job-3", 1, gang="job", gang_size=4)
    there = held("job-2", "a", 0, gang="job", gang_size=4)
    nodes = (dgx("a"),)

    alone = schedule(Snapshot(nodes=nodes, pods=(there,)), [late], now=NOW)
    joined = schedule(Snapshot(nodes=nodes, pods=(there,), succeeded={"team/job": 2}), [late], now=NOW)

    assert [wait.reason for wait in alone.waits] == ["Incomplete"]
    assert [binding.pod for binding in joined.bindings] == ["team/job-3"]
