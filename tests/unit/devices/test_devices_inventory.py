"""What other programs are told of a node's GPUs, and that simulated ones are called so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gangline.devices import inventory as told
from gangline.devices.driver_files import device_files, read_driver_files
from gangline.devices.inventory import DeviceInventory, Gpu
from gangline.devices.machine_claim import MachineClaim
from gangline.devices.nvml import numa_node
from gangline.devices.simulated import simulate
from gangline.errors import UserError
from gangline.topology.annotation import read_annotation
from gangline.topology.known import known_machine


def test_no_gpu_takes_everything_of_an_earlier_start_away() -> None:
    none = DeviceInventory()

    assert told.capacity(none) == {}
    assert told.topology_note(none) is None
    assert set(told.node_labels(none).values()) == {None}


def test_a_gpu_that_does_not_answer_counts_as_capacity_only() -> None:
    sick = DeviceInventory("nvml", "A B", (Gpu("GPU-0", 0), Gpu("GPU-1", 1, healthy=False)))

    assert told.capacity(sick) == {"nvidia.com/gpu": "2"}
    assert told.allocatable(sick) == {"nvidia.com/gpu": "1"}


def test_simulated_gpus_are_called_so_in_labels_note_and_words() -> None:
    gpus = simulate("node-1", 8, "v100-dgx1")

    labels = told.node_labels(gpus)
    assert labels["nvidia.com/gpu.product"] == "simulated-v100-dgx1"
    assert labels["nvidia.com/gpu.count"] == "8"
    assert labels["gangline.dev/gpu-source"] == "simulated"
    assert labels["node-role.kubernetes.io/simulated-gpus"] == ""
    assert json.loads(told.topology_note(gpus) or "")["source"] == "simulated"
    assert gpus.in_words == "8 simulated GPUs"
    assert all("simulated" in gpu.uuid for gpu in gpus.gpus)


def test_a_known_machine_brings_its_links_and_any_of_its_names_will_do() -> None:
    note = told.topology_note(simulate("node-0", 8, "dgx1-v100"))

    read = read_annotation(note or "")

    assert read.machine == known_machine("v100-dgx1")
    assert read.uuids[3] == "GPU-simulated-node-0-3"


def test_without_known_links_the_slowest_is_promised() -> None:
    note = json.loads(told.topology_note(simulate("node-0", 2)) or "")

    assert note["links"] == [["X", "SYS"], ["SYS", "X"]]


@pytest.mark.parametrize(
    ("count", "model", "message"),
    [
        (-1, "", "1 to 64 simulated GPUs"),
        (65, "", "1 to 64 simulated GPUs"),
        (9, "v100-dgx1", "a `v100-dgx1` has 8 GPUs, 9 are to be simulated"),
        (1, "v100-dgx9", "no known machine is called `v100-dgx9`"),
    ],
)
def test_what_cannot_be_simulated_is_refused(count: int, model: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        simulate("node-0", count, model)


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (folder / name).touch()
    return folder


def test_driver_files_tell_ids_in_the_order_of_the_bus(tmp_path: Path, dev: Path) -> None:
    for address, minor, uuid in (("0000:3b:00.0", 1, "GPU-b"), ("0000:86:00.0", 0, "GPU-a")):
        folder = tmp_path / "gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t Tesla T4\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        )

    found = read_driver_files(tmp_path / "gpus", dev)

    assert found.source == "file"
    assert found.model == "Tesla T4"
    assert {(gpu.uuid, gpu.minor) for gpu in found.gpus} == {("GPU-b", 1), ("GPU-a", 0), ("nvidia10", 10)}
    known = [gpu.uuid for gpu in found.gpus if gpu.uuid.startswith("GPU")]
    assert known == ["GPU-b", "GPU-a"]
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2]


def test_a_pod_needs_its_own_files_and_the_shared_ones(dev: Path) -> None:
    assert device_files([1], dev) == [str(dev / name) for name in ("nvidia1", "nvidiactl", "nvidia-uvm")]
    assert device_files([], dev) == []


def test_memory_node_of_an_address_whatever_the_width_of_its_domain(tmp_path: Path) -> None:
    for name, text in (("0000:3b:00.0", "1\n"), ("0000:86:00.0", "-1\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "numa_node").write_text(text)

    assert numa_node("00000000:3B:00.0", tmp_path) == 1
    assert numa_node("0000:86:00.0", tmp_path) is None
    assert numa_node("0000:99:00.0", tmp_path) is None


def test_one_claim_at_a_time(tmp_path: Path) -> None:
    first, second = MachineClaim(tmp_path / "lock"), MachineClaim(tmp_path / "lock")

    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()
