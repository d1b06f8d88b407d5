"""What is kept of a pod that runs says the same about job, gang and set as all of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.placement import PodView
from gangline.scheduler.kept_pods import kept_pod
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
    kept = kept_pod(whole)

    for said in (gang_of, gang_size, succeeded_gang, is_of_set, lambda one: one.metadata.key):
        assert said(kept) == said(whole)
    views = PodView.from_pod(kept), PodView.from_pod(whole)
    for name in ("key", "uid", "job", "replica_type", "node_name", "gang", "gang_size"):
        assert getattr(views[0], name) == getattr(views[1], name), name
    assert (kept.is_finished, kept.spec.scheduler_name) == (whole.is_finished, NAMES[0])


@pytest.mark.parametrize("whole", PODS.values(), ids=PODS)
def test_a_pod_that_goes_is_counted_off_by_what_was_kept(whole: Pod):
    tally = GangTally(NAMES)
    gang = tally.take(None, whole)

    assert tally.take(kept_pod(whole), None) == gang
    assert tally.progress(gang).pods == 0


def test_what_nobody_reads_again_goes():
    kept = kept_pod(PODS["plugins"])

    assert (kept.spec.containers, kept.metadata.annotations) == ([], {})
    assert kept.metadata.labels == {"scheduling.x-k8s.io/pod-group": "g"}


def test_pods_alike_share_what_is_kept():
    one, other = (kept_pod(PODS["arena"]) for _ in range(2))

    assert one.metadata.labels is other.metadata.labels
    assert one.spec is other.spec
    assert one.status is other.status


def test_a_pod_that_waits_is_kept_whole():
    waits = pod(phase="Pending", nodeName="")
    assert kept_pod(waits) is waits
