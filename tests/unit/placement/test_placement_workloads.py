"""Kubernetes' own gangs: pod groups of a Workload, and the pods that name them."""

from typing import Any

import msgspec
import pytest
from gang_scenes import NOW, dgx, reasons

from gangline.api.core import Pod
from gangline.api.pod_group import PodGroup
from gangline.placement.cycle import schedule
from gangline.placement.gangs import Groups
from gangline.placement.groups.read_groups import read_workload
from gangline.placement.snapshot import PodView, Snapshot
from gangline.placement.snapshot_file import read_snapshot
from gangline.workloads.gang_names import gang_of

WORKLOAD = {
    "apiVersion": "scheduling.k8s.io/v1alpha1",
    "kind": "Workload",
    "metadata": {"name": "train", "namespace": "team", "creationTimestamp": "2026-01-01T10:00:00Z"},
    "spec": {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"},
        "podGroups": [
            {"name": "workers", "policy": {"gang": {"minCount": 3}}},
            {"name": "driver", "policy": {"basic": {}}},
        ],
    },
}


def groups() -> Groups:
    found = read_workload(msgspec.convert(WORKLOAD, PodGroup), {})
    return Groups({group.key: group for group in found})


def pod(name: str, group: str = "workers", replica: str = "") -> Pod:
    ref = {"name": "train", "podGroup": group} | ({"podGroupReplicaKey": replica} if replica else {})
    value: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {
            "containers": [{"name": "w", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
            "workloadRef": ref,
        },
    }
    return msgspec.convert(value, Pod)


def views(*pods: Pod) -> list[PodView]:
    return [PodView.from_pod(found) for found in pods]


def test_a_pod_names_its_group_and_replica():
    assert gang_of(pod("p")) == "team/train/workers"
    assert gang_of(pod("p", replica="r1")) == "team/train/workers/r1"


def test_min_count_is_what_must_start_together_and_basic_means_nothing_must():
    found = groups()

    assert [(key, group.min_member) for key, group in found.items()] == [
        ("team/train/workers", 3),
        ("team/train/driver", 0),
    ]
    assert found["team/train/workers"].created == "2026-01-01T10:00:00Z"


@pytest.mark.parametrize(("count", "placed"), [(2, 0), (3, 3), (4, 4), (5, 4)])
def test_as_many_as_min_count_start_together_or_none(count: int, placed: int):
    pods = views(*(pod(f"p-{index}") for index in range(count)))

    assert len(schedule(Snapshot(nodes=(dgx("a"),)), pods, now=NOW, groups=groups()).bindings) == placed


def test_each_replica_of_a_pod_group_is_a_gang_of_its_own():
    pods = views(
        *(pod(f"a-{index}", replica="a") for index in range(3)),
        *(pod(f"b-{index}", replica="b") for index in range(2)),
    )

    found = schedule(Snapshot(nodes=(dgx("a"), dgx("b"))), pods, now=NOW, groups=groups())

    assert {binding.pod for binding in found.bindings} == {f"team/a-{index}" for index in range(3)}
    assert {wait.gang: wait.reason for wait in found.waits} == {"team/train/workers/b": "Incomplete"}


def test_pods_of_a_basic_group_start_each_for_itself():
    pods = views(*(pod(f"d-{index}", "driver") for index in range(5)))

    assert len(schedule(Snapshot(nodes=(dgx("a"),)), pods, now=NOW, groups=groups()).bindings) == 4


@pytest.mark.parametrize("group", ["gone", "workers"])
def test_pods_wait_for_a_workload_that_is_not_there(group: str):
    table = groups() if group == "gone" else Groups()
    found = schedule(Snapshot(nodes=(dgx("a"),)), views(pod("p", group)), now=NOW, groups=table)

    assert list(reasons(found).values()) == ["NoGroup"]


def test_a_snapshot_file_may_have_workloads():
    documents = [WORKLOAD, {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(pod("p"))}]
    seen = read_snapshot(msgspec.json.encode({"kind": "List", "items": documents}).decode())

    assert set(seen.groups) == {"team/train/workers", "team/train/driver"}
    assert seen.waiting[0].gang == "team/train/workers"
