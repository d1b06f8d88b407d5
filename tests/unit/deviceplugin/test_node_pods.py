"""What a plugin's node has for its pods: sets that were chosen, and annotations that say what pods got."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs grpcio")

from gangline.api.core import ObjectMeta, Pod, PodStatus
from gangline.deviceplugin.answers import preferred
from gangline.deviceplugin.node_pods import NodePods, promised_sets, untrue
from gangline.devices.simulated import simulate
from gangline.train.records import format_record

GPUS = "gangline.dev/gpus"
NODE = simulate("n", 8, "v100-dgx1")
IDS = [gpu.uuid for gpu in NODE.gpus]
INDICES = {gpu.uuid: gpu.index for gpu in NODE.gpus}


def pod(name: str, *indices: int, phase: str = "Pending", age: int = 0, text: str = "") -> Pod:
    chosen = text or json.dumps({"main": [IDS[index] for index in indices]})
    made = f"2026-01-01T00:00:{age:02}Z"
    notes = {GPUS: chosen} if indices or text else {}
    metadata = ObjectMeta(name=name, namespace="d", uid=name, annotations=notes, creation_timestamp=made)
    return Pod(metadata=metadata, status=PodStatus(phase=phase))


def sets(*found: tuple[int, ...]) -> list[frozenset[str]]:
    return [frozenset(IDS[index] for index in indices) for indices in found]


def asked(count: int, *free: int, promised: Any = (), included: tuple[int, ...] = ()) -> list[int]:
    must = [IDS[index] for index in included]
    found = preferred(NODE, [IDS[index] for index in free], must, count, promised)
    return [INDICES[one] for one in found]


def test_sets_are_those_of_pods_that_go_on_the_oldest_first() -> None:
    pods = [pod("b", 2, 3, age=2), pod("a", 0, 1, age=1), pod("over", 4, phase="Failed"), pod("none")]

    assert promised_sets([*pods, pod("odd", text="[1]")]) == sets((0, 1), (2, 3))


def test_a_set_that_waits_is_given_to_the_first_that_asks_for_as_many() -> None:
    promised = sets((4, 6), (0, 1, 2), (5, 7))

    assert asked(2, *range(8), promised=promised) == [4, 6]
    assert asked(2, 5, 6, 7, promised=promised) == [5, 7]  # 4 is taken: the first pod has its set
    assert asked(3, *range(8), promised=promised) == [0, 1, 2]
    assert asked(2, *range(8), promised=promised, included=(5,)) == [5, 7]


def test_others_are_kept_from_what_is_promised_as_long_as_there_is_more() -> None:
    promised = sets((0, 3, 2))

    assert asked(2, *range(8)) == [0, 3]  # the fastest pair
    assert asked(2, *range(8), promised=promised) == [4, 7]
    assert asked(2, 0, 1, 2, 3, promised=promised) == [0, 3]  # only 1 is not promised


def test_an_annotation_is_true_when_it_has_what_the_kubelet_says() -> None:
    held = {("d", name): {"main": [IDS[index] for index in got]} for name, got in HELD.items()}
    pods = [
        pod("a", 0, 1),
        pod("b", 2, 3),
        pod("same", 5, 4),
        pod("stranger"),
        pod("odd", text="{"),
        pod("new", 6),
    ]

    found = {one.metadata.name: notes for one, notes in untrue(pods, held, INDICES)}

    assert set(found) == {"a", "b", "stranger", "odd"}
    assert json.loads(found["a"][GPUS]) == {"main": [IDS[2], IDS[3]]}
    assert found["b"]["topology.kubernetes.io/gpu-group"] == "0,1"
    assert json.loads(found["stranger"][GPUS]) == {"main": [IDS[7]]}


HELD = {"a": (3, 2), "b": (0, 1), "same": (4, 5), "stranger": (7,), "odd": (6,), "gone": (1,)}


class SpokenTo:
    """A cluster with some pods that notes what is written on them."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = pods
        self.written: dict[str, dict[str, str]] = {}

    async def list_as(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(items=list(self.pods))

    async def patch(self, _: Any, name: str, patch: Any, namespace: str) -> None:
        assert namespace == "d"
        self.written.setdefault(name, {}).update(patch["metadata"]["annotations"])


async def test_a_pod_with_gpus_is_told_when_its_training_saved_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.deviceplugin.node_pods.PAUSES_S", (0.0,))
    saved = format_record("checkpoint", step=3)
    for name in ("with", "without"):
        log = tmp_path / f"d_{name}_{name}" / "main" / "0.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"2026-01-01T12:00:05.5+00:00 stdout F {saved}")
    cluster = SpokenTo(pod("with", 0), pod("without"))
    pods = NodePods(cluster, "n", print, logs=tmp_path)  # type: ignore[arg-type]

    async def held() -> Any:
        return {("d", "with"): {"main": [IDS[0]]}}

    monkeypatch.setattr(pods, "_held", held)
    task = asyncio.create_task(pods.keep_true())
    pods.note([])
    async with asyncio.timeout(10):
        while not cluster.written:
            await asyncio.sleep(0.01)
    task.cancel()

    assert cluster.written == {"with": {"gangline.dev/checkpoint-time": "2026-01-01T12:00:05Z"}}
