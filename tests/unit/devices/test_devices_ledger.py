"""The books over GPUs: lowest free first, or as the pod's annotation says; all of a pod's or none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.devices.inventory import DeviceInventory, Gpu
from gangline.devices.ledger import ANNOTATION, GpuChoiceError, GpuLedger, GpuRequest, GpusTakenError

NODE = "node-0"


def inventory(count: int, *, unhealthy: tuple[int, ...] = ()) -> DeviceInventory:
    gpus = tuple(Gpu(f"GPU-{n}", n, minor=n, healthy=n not in unhealthy) for n in range(count))
    return DeviceInventory("nvml", "a model", gpus)


def request(
    uid: str,
    *containers: tuple[str, int],
    init: tuple[tuple[str, int, str], ...] = (),
    chosen: dict[str, list[str]] | str | None = None,
) -> GpuRequest:
    def container(name: str, gpus: int, policy: str = "") -> dict[str, Any]:
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        return {"name": name, "resources": {"limits": limits}, "restartPolicy": policy}

    text = chosen if isinstance(chosen, str) else json.dumps(chosen)
    pod = {
        "metadata": {"name": uid, "uid": uid, "annotations": {ANNOTATION: text} if chosen else {}},
        "spec": {
            "nodeName": NODE,
            "containers": [container(*one) for one in containers],
            "initContainers": [container(*one) for one in init],
        },
    }
    return GpuRequest.of(msgspec.convert(pod, Pod))


def test_lowest_free_index_comes_first() -> None:
    ledger = GpuLedger({NODE: inventory(4)})

    assert ledger.take(request("a", ("main", 2))) == {"main": ("GPU-0", "GPU-1")}
    assert ledger.take(request("b", ("main", 1))) == {"main": ("GPU-2",)}
    ledger.release("a")
    assert ledger.take(request("c", ("main", 3))) == {"main": ("GPU-0", "GPU-1", "GPU-3")}


def test_a_pod_without_gpus_holds_none() -> None:
    ledger = GpuLedger({NODE: inventory(1)})

    assert ledger.take(request("a", ("main", 0))) == {}
    assert ledger.held() == {}


def test_too_few_free_gives_none_at_all() -> None:
    ledger = GpuLedger({NODE: inventory(3)})
    ledger.take(request("a", ("main", 2)))

    with pytest.raises(GpusTakenError, match="waits for 2 GPUs of node node-0: 1 of 3 real GPUs are free"):
        ledger.take(request("b", ("one", 1), ("two", 1)))
    assert set(ledger.held().values()) == {"a"}


def test_containers_of_one_pod_share_nothing_and_asking_again_changes_nothing() -> None:
    ledger = GpuLedger({NODE: inventory(4)})
    wanted = request("a", ("one", 1), ("two", 2))

    given = ledger.take(wanted)

    assert given == {"one": ("GPU-0",), "two": ("GPU-1", "GPU-2")}
    assert ledger.take(wanted) == given


def test_init_containers_use_the_gpus_of_those_that_follow_and_sidecars_their_own() -> None:
    ledger = GpuLedger({NODE: inventory(4)})
    init = (("prepare", 2, ""), ("side", 1, "Always"))

    given = ledger.take(request("a", ("main", 1), init=init))

    assert given == {"side": ("GPU-0",), "main": ("GPU-1",), "prepare": ("GPU-0", "GPU-1")}
    assert ledger.free(NODE) == ["GPU-2", "GPU-3"]


def test_the_annotation_is_obeyed() -> None:
    ledger = GpuLedger({NODE: inventory(4)})

    given = ledger.take(request("a", ("main", 2), ("other", 1), chosen={"main": ["GPU-3", "GPU-0"]}))

    assert given == {"main": ("GPU-3", "GPU-0"), "other": ("GPU-1",)}


def test_a_chosen_gpu_that_is_held_is_waited_for() -> None:
    ledger = GpuLedger({NODE: inventory(2)})
    ledger.take(request("a", ("main", 1)))
    wanted = request("b", ("main", 1), chosen={"main": ["GPU-0"]})

    with pytest.raises(GpusTakenError, match="GPU-0, which another pod holds"):
        ledger.take(wanted)
    ledger.release("a")
    assert ledger.take(wanted) == {"main": ("GPU-0",)}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"main": ["GPU-7", "GPU-0"]}, "node node-0 has no GPU GPU-7"),
        ({"main": ["GPU-0", "GPU-0"]}, "gives GPU GPU-0 twice"),
        ({"main": ["GPU-0"]}, "gives container main 1 GPUs, its limit nvidia.com/gpu is 2"),
        ({"nobody": ["GPU-0"]}, "gives container nobody 1 GPUs, its limit nvidia.com/gpu is 0"),
        ("[1]", "must be a JSON object"),
        ("{", "must be a JSON object"),
    ],
)
def test_a_choice_that_can_never_be_given_is_refused(chosen: Any, message: str) -> None:
    ledger = GpuLedger({NODE: inventory(2)})

    with pytest.raises(GpuChoiceError, match=message):
        ledger.take(request("a", ("main", 2), chosen=chosen))
    assert ledger.held() == {}


def test_a_gpu_that_does_not_answer_is_not_given() -> None:
    ledger = GpuLedger({NODE: inventory(2, unhealthy=(0,))})

    assert ledger.take(request("a", ("main", 1))) == {"main": ("GPU-1",)}
    with pytest.raises(GpusTakenError, match="GPU-0, which does not answer"):
        ledger.take(request("b", ("main", 1), chosen={"main": ["GPU-0"]}))


def test_a_damaged_record_does_not_make_two_holders() -> None:
    ledger = GpuLedger({NODE: inventory(2)})
    ledger.reserve("a", {"main": ["GPU-0"]})

    assert ledger.reserve("b", {"main": ["GPU-0", "GPU-1"]}) == ["GPU-0"]
    assert ledger.held() == {"GPU-0": "a", "GPU-1": "b"}


def test_pods_may_ask_by_the_name_that_arena_uses() -> None:
    limits = {"limits": {"aliyun.com/gpu": "2"}}
    pod = {
        "metadata": {"name": "a", "uid": "a"},
        "spec": {"nodeName": NODE, "containers": [{"name": "mpi", "resources": limits}]},
    }

    assert GpuRequest.of(msgspec.convert(pod, Pod)).shares == {"mpi": range(2)}


def test_an_init_container_never_uses_the_gpus_of_a_sidecar_that_runs_beside_it() -> None:
    ledger = GpuLedger({NODE: inventory(4)})
    inits = (("early", 1, ""), ("side", 1, "Always"), ("late", 3, ""))

    assert ledger.take(request("a", ("main", 2), init=inits)) == {
        "early": ("GPU-0",),
        "side": ("GPU-0",),
        "main": ("GPU-1", "GPU-2"),
        "late": ("GPU-1", "GPU-2", "GPU-3"),
    }
    assert len(ledger.held()) == 4
