"""What pods that measure wires are told, and what is made of what they say."""

from __future__ import annotations

import json

import pytest

from gangline.client.wires.pods import PodWorld, WirePlan, rates_of, read_records
from gangline.errors import UserError
from gangline.train.records import format_record

PLAN = WirePlan(("a", "b"), 2, (0b11,), 1 << 20)
WORLD = PodWorld("wires-1", "team", "image", ("python3",), gpus=2, scheduler="gangline-scheduler")


def said(*rates: tuple[list[int], float], device: str = "NVIDIA A100") -> list[str]:
    ranks = format_record("wire-ranks", backend="nccl", device=device, uuids=["GPU-1", "GPU-0", "", ""])
    return ["noise", ranks, *(format_record("wires", ranks=found, gb_s=rate) for found, rate in rates)]


def test_a_pod_is_on_its_node_with_all_of_its_gpus_and_knows_where_ranks_meet():
    pod = WORLD.pod(PLAN, 1, "10.0.0.7", "print($(x))")

    spec, [container] = pod["spec"], pod["spec"]["containers"]
    told = json.loads(container["env"][0]["value"])
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "b"}
    assert spec["schedulerName"] == "gangline-scheduler"
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert container["command"] == ["python3", "-c", "print($$(x))"]
    assert (told["master"], told["node"], told["nodes"], told["each"]) == ("10.0.0.7", 1, 2, 2)
    assert told["sets"] == [[0, 1], [0, 1, 2, 3]]


def test_rates_stand_beside_predictions_by_the_indices_of_the_gpus():
    records = read_records(said(([0, 1], 200.0), ([0, 1, 2, 3], 20.0)), PLAN)
    rates = rates_of(records, PLAN, [5, 4], [240.0, 25.0], "2026-11-25T00:00:00Z")

    assert [(one.gpus, one.measured, one.predicted) for one in rates.sets] == [((4, 5), 200.0, 240.0)]
    assert rates.network is not None
    assert (rates.network.nodes, rates.network.gpus) == (("a", "b"), (4, 5))
    assert (rates.network.measured, rates.network.predicted) == (20.0, 25.0)
    assert rates.way == "nccl on NVIDIA A100"


def test_ranks_that_ended_too_early_have_measured_nothing():
    with pytest.raises(UserError, match="measured 1 of 2 sets"):
        read_records(said(([0, 1], 200.0)), PLAN)
