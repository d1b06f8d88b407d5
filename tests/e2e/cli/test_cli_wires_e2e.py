"""Wires of nodes, measured between processes in pods; the GPUs that these stand for are simulated."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

JOB = """
apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  restartPolicy: Never
  nodeSelector: {kubernetes.io/hostname: node-0}
  containers:
    - {name: c, image: gangline/base, command: [sleep, "20"], resources: {limits: {nvidia.com/gpu: 2}}}
"""


@pytest.fixture(scope="module")
def gangline() -> Iterator[Any]:
    """Commands on a cluster of two nodes with four simulated GPUs each, linked as in a p3.8xlarge."""
    sys.path.insert(0, str(Path(__file__).parent))
    from conftest import Commands

    with tempfile.TemporaryDirectory(prefix="gangline-wires-", ignore_cleanup_errors=True) as home:
        commands = Commands(Path(home))
        up = commands("up", "--nodes", "2", "--simulate-gpus", "4", "--gpu-model", "p3.8xlarge")
        assert up.returncode == 0, up.stderr
        yield commands
        commands("down", "--purge")


def placement(gangline: Any, pod: str) -> Any:
    """Return what is said of where a pod is."""
    return json.loads(gangline("explain", f"pod/{pod}", "--placement", "-o", "json").stdout)["placement"]


def test_measured_rates_stand_beside_predictions_and_explain_predicts_with_them(gangline):
    from conftest import wait_for

    measured = gangline("bench", "wires", "node-0", "--size-mib", "1", "-o", "json")
    assert measured.returncode == 0, measured.stderr
    found = json.loads(measured.stdout)
    assert (found["written"], found["device"]) == (True, "cpu")
    assert found["sets"][0]["gpus"] == [0, 1]
    assert found["sets"][0]["predicted"] == 20.0  # one NVLink of a V100
    rate = next(one["measured"] for one in found["sets"] if one["gpus"] == [0, 3])

    file = gangline.home / "two.yaml"
    file.write_text(JOB)
    assert gangline("apply", str(file)).returncode == 0
    wait_for(lambda: placement(gangline, "two")["isPlaced"], "the pod to be placed")
    explained = placement(gangline, "two")

    assert explained["rates"]["node-0"]["sets"] == found["sets"]
    assert explained["chosen"]["nodes"] == [{"node": "node-0", "ring": [0, 3]}]
    assert explained["chosen"]["busGBPerSecond"] == pytest.approx(rate, abs=0.005)
    text = " ".join(gangline("explain", "pod/two", "--placement").stdout.split())
    assert "Measured rates of node-0: links; mpi on CPUs, no GPU took part; 20" in text


def test_a_node_that_is_not_there_is_named_with_those_that_are(gangline):
    done = gangline("bench", "wires", "node-7")

    assert done.returncode != 0
    assert "there is no node `node-7`" in done.stderr
    assert "node-0, node-1" in done.stderr


@pytest.mark.train
def test_torch_measures_to_a_second_node(gangline, torch_python):
    done = gangline(
        "bench", "wires", "node-1", "node-0", "--size-mib", "1", "--python", str(torch_python), "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["backend"] == "gloo"
    assert found["network"]["nodes"] == ["node-1", "node-0"]
    assert found["network"]["gpus"] == [0, 1, 2, 3]
    assert found["network"]["predicted"] == pytest.approx(1.25)  # 10 Gbit/s of the instance type
    assert found["network"]["measured"] > 0
