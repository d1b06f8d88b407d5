"""Snapshot files: what is read, in whatever order and packing, and what is refused."""

import json

import pytest
import yaml
from gang_scenes import NOW

from gangline.errors import UserError
from gangline.placement.cycle import schedule
from gangline.placement.snapshot_file import Situation, read_snapshot

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "a"},
    "status": {
        "allocatable": {"cpu": "4", "pods": "10", "nvidia.com/gpu": "2"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def pod(
    name: str, gpus: int = 1, node: str = "", phase: str = "Pending", gang: str = ""
) -> dict[str, object]:
    labels = {"scheduling.x-k8s.io/pod-group": gang} if gang else {}
    limits = {"nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": phase},
    }


GROUP = {
    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"name": "g"},
    "spec": {"minMember": 2, "priorityClassName": "high"},
}
HIGH = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
QUEUE = {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"capability": {"nvidia.com/gpu": 1}}}


def read(*objects: object) -> Situation:
    return read_snapshot(yaml.safe_dump_all(objects))


def test_nodes_pods_gangs_and_queues_are_read():
    over = pod("over", node="a", phase="Succeeded")

    seen = read(NODE, pod("held", node="a", phase="Running"), over, pod("p", gang="g"), GROUP, HIGH, QUEUE)

    assert [node.name for node in seen.snapshot.nodes] == ["a"]
    assert [held.key for held in seen.snapshot.pods] == ["default/held"]
    assert [waits.gang for waits in seen.waiting] == ["default/g"]
    assert (seen.groups["default/g"].min_member, seen.groups["default/g"].priority) == (2, 7)
    assert seen.policy(levels=("rack",)).queues["q"].capability == {"nvidia.com/gpu": 1}


def test_a_list_a_stream_and_json_say_the_same():
    objects = [NODE, GROUP, pod("p", gang="g"), pod("q", gang="g")]
    stream = read(*objects)

    assert read({"kind": "List", "items": objects}) == stream
    assert read_snapshot(json.dumps({"kind": "List", "items": objects})) == stream
    decided = schedule(stream.snapshot, stream.waiting, now=NOW, groups=stream.groups)
    assert [binding.pod for binding in decided.bindings] == ["default/p", "default/q"]


def test_claims_of_the_file_keep_pods_waiting():
    waits = pod("p") | {}
    waits["spec"] = {**waits["spec"], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    lazy = {"kind": "StorageClass", "metadata": {"name": "s"}, "volumeBindingMode": "Immediate"}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"storageClassName": "s"}}

    assert read(NODE, waits).waiting[0].refusal == ""
    assert read(NODE, waits, lazy, claim).waiting[0].refusal == (
        "waits for claim default/c to be bound to a volume"
    )


def test_an_empty_file_is_an_empty_cluster():
    assert read_snapshot("") == Situation(snapshot=read().snapshot)


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([{"kind": "Service", "metadata": {"name": "s"}}], "object 1 of the snapshot has kind `Service`"),
        ([{"kind": "Pod", "metadata": {}}], "object 1 of the snapshot, a Pod, has no metadata.name"),
        ([NODE, NODE], "the snapshot has two objects Node `a`"),
        ([pod("p") | {"spec": {"containers": 3}}], "Pod `default/p` of the snapshot: Expected `array`"),
        ([QUEUE | {"spec": {"capability": {"cpu": "many"}}}], "Queue `q` of the snapshot"),
        ([["a"]], "must hold Kubernetes objects (found a list)"),
    ],
)
def test_what_is_wrong_is_told_with_its_object(objects: list[object], words: str):
    with pytest.raises(UserError, match=".*") as told:
        read(*objects)

    assert words in str(told.value)


def test_text_that_is_no_yaml_is_told_with_its_line():
    with pytest.raises(UserError, match="x.yaml cannot be read at line 3"):
        read_snapshot("a: 1\nb: [\n", name="x.yaml")
