"""The user's CUDA_VISIBLE_DEVICES is the set that the ranks of a program share."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.devices.inventory import TOPOLOGY_ANNOTATION, DeviceInventory, Gpu, topology_note
from gangline.devices.ledger import GpuLedger, GpuRequest, GpusTakenError
from gangline.devices.visible_gpus import visible_gpus, with_visible_gpus
from gangline.errors import UserError

IDS = ["GPU-aa11", "GPU-ab22", "GPU-b333", "GPU-c444"]
GPUS = DeviceInventory(source="nvml", gpus=tuple(Gpu(uuid, index) for index, uuid in enumerate(IDS)))


def node(name: str, inventory: DeviceInventory) -> dict[str, Any]:
    note = topology_note(inventory)
    return {"metadata": {"name": name, "annotations": {TOPOLOGY_ANNOTATION: note} if note else {}}}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("2,3", [2, 3]),
        ("3, 0", [3, 0]),
        ("GPU-b333,GPU-c", [2, 3]),
        ("GPU-aa,1", [0, 1]),
        ("GPU-a,1", []),  # fits two: CUDA takes neither, nor what follows
        ("", []),
        ("-1", []),
        ("1,-1,2", [1]),
        ("1,9,2", [1]),
        ("NoDevFiles", []),
        ("1,1", [1]),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(text: str, named: list[int]) -> None:
    nodes = [node("node-0", GPUS), node("node-1", DeviceInventory())]

    assert visible_gpus(text, nodes) == {"node-0": [IDS[index] for index in named], "node-1": []}


def test_a_part_of_a_gpu_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"names `MIG-6f1.*whole GPUs"):
        visible_gpus("0,MIG-6f1c", [node("node-0", GPUS)])


def test_none_but_the_named_ones_are_handed_out() -> None:
    container = {"name": "l", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    job = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    marked = with_visible_gpus(job, visible_gpus("2,3", [node("node-0", GPUS)]))
    assert job["metadata"] == {"name": "p"}
    assert marked["metadata"]["annotations"] == {"gangline.dev/visible-gpus": "GPU-b333,GPU-c444"}

    ledger = GpuLedger({"node-0": GPUS})
    request = {"node": "node-0", "shares": {"l": range(1)}, "starting": frozenset(), "chosen": {}}
    visible = frozenset(IDS[2:])
    given = [ledger.take(GpuRequest(uid=uid, visible=visible, **request)) for uid in "ab"]
    assert given == [{"l": ("GPU-b333",)}, {"l": ("GPU-c444",)}]
    with pytest.raises(GpusTakenError, match=r"0 of 4 real GPUs are free, counted are 2, 3"):
        ledger.take(GpuRequest(uid="c", visible=visible, **request))
    assert ledger.take(GpuRequest(uid="d", **request)) == {"l": ("GPU-aa11",)}
