"""What is kept of a pod that runs says the same about job, gang and set as all of it."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from gangline.api.core import Node, Pod
from gangline.placement import PodView
from gangline.scheduler.kept import KeptPod, kept_node, kept_pod, pod_of_set
from gangline.scheduler.state import SchedulerState
from gangline.scheduler.tally import GangTally
from gangline.workloads.gang_names import gang_of, gang_size, succeeded_gang
from gangline.workloads.workload_sets import is_of_set

NAMES = ("gangline-scheduler",)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "o", "controller": True}


def pod(*, labels: Any = (), annotations: Any = (), phase: str = "Running", **spec: Any) -> Pod:
    metadata = {
        "name": "w-0",
        "namespace": "team",
        "uid": "u",
        "labels": dict(labels),
        "annotations": {"other": "x", **dict(annotations)},
        "ownerReferences": [OWNER],
    }
    containers = [{"name": "main", "image": "i", "env": [{"name": "A", "value": "b"}]}]
    spec = {"nodeName": "a", "schedulerName": NAMES[0], "containers": containers, **spec}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


PODS = {
    "plugins": pod(labels={"scheduling.x-k8s.io/pod-group": "g", "other": "x"}),
    "arena": pod(
        labels={
            "pod-group.scheduling.sigs.k8s.io/name": "g",
            "pod-group.scheduling.sigs.k8s.io/min-available": "3",
        }
    ),
    "volcano": pod(annotations={"scheduling.k8s.io/group-name": "g"}),
    "kubernetes": pod(schedulingGroup={"podGroupName": "g"}),
    "workload": pod(workloadRef={"name": "w", "podGroup": "p", "podGroupReplicaKey": "1"}),
    "indexed job": pod(
        annotations={"gangline.dev/gang-size": "2"}, labels={"batch.kubernetes.io/job-name": "j"}
    ),
    "owned": pod(annotations={"gangline.dev/gang-size": "2"}, phase="Succeeded"),
    "job set": pod(labels={"jobset.sigs.k8s.io/jobset-name": "s", "other": "x"}, phase="Succeeded"),
    "launcher": pod(
        labels={"training.kubeflow.org/job-name": "j", "training.kubeflow.org/job-role": "launcher"},
        phase="Failed",
    ),
}


@pytest.mark.parametrize("whole", PODS.values(), ids=PODS)
def test_what_is_kept_says_the_same(whole: Pod):
    kept, view = kept_pod(whole), PodView.from_pod(whole)

    assert isinstance(kept, KeptPod)
    assert (kept.uid, kept.gang, kept.scheduler_name) == ("u", gang_of(whole), NAMES[0])
    assert kept.main_of == (view.job if view.replica_type == "launcher" else "")
    assert (kept.is_bound, kept.is_finished) == (True, whole.is_finished)


@pytest.mark.parametrize("whole", PODS.values(), ids=PODS)
def test_what_is_kept_of_a_pod_of_a_set_tells_its_gang(whole: Pod):
    kept = pod_of_set(whole)

    for said in (gang_of, gang_size, succeeded_gang, is_of_set):
        assert said(kept) == said(whole)


@pytest.mark.parametrize("whole", PODS.values(), ids=PODS)
def test_a_pod_that_goes_is_counted_off_by_what_was_kept(whole: Pod):
    tally = GangTally(NAMES)
    gang = tally.take(None, whole)

    assert tally.take(kept_pod(whole), None) == gang
    assert tally.progress(gang).pods == 0


@pytest.mark.parametrize("whole", PODS.values(), ids=PODS)
def test_a_pod_that_goes_gives_its_room_back_by_what_was_kept(whole: Pod):
    state = SchedulerState(NAMES)
    state.take_pod(None, whole)
    state.take_pod(kept_pod(whole), None)

    assert len(state.allocations) == 0


def test_what_is_kept_is_small():
    assert sys.getsizeof(kept_pod(PODS["plugins"])) <= 64


def test_a_pod_that_waits_is_kept_whole():
    waits = pod(phase="Pending", nodeName="")
    assert kept_pod(waits) is waits


def test_of_a_node_the_taints_are_kept():
    """Its annotations and status are kilobytes."""
    node = msgspec.convert(
        {
            "metadata": {
                "name": "a",
                "resourceVersion": "7",
                "labels": {"x": "y"},
                "annotations": {"b": "c"},
            },
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4"}},
        },
        Node,
    )
    kept = kept_node(node)

    assert (kept.metadata.resource_version, kept.metadata.labels) == ("7", {"x": "y"})
    assert kept.spec == node.spec
    assert (kept.metadata.annotations, kept.status.allocatable) == ({}, {})
