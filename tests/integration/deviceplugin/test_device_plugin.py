"""The plugin beside a kubelet that stands in for a real one; GPUs are simulated, or a stand-in NVML's."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

grpc = pytest.importorskip("grpc", reason="needs grpcio")

from gangline.deviceplugin import v1beta1_pb2 as api  # noqa: E402
from gangline.devices.inventory import DeviceInventory, with_unhealthy  # noqa: E402
from gangline.devices.simulated import simulate  # noqa: E402

LIMIT_S = 60
STAND_IN = Path(__file__).parents[2] / "stand_in_nvml" / "stand_in_nvml.py"
DGX1 = ("--node", "n", "--simulate-gpus", "8", "--gpu-model", "v100-dgx1")
REGISTERED = "Registered device plugin with Kubelet"
Start = Callable[..., Any]


def tell(folder: Path, inventory: DeviceInventory) -> None:
    """Write what a node says of its GPUs."""
    draft = folder / "draft"
    draft.write_bytes(msgspec.json.encode(inventory))
    draft.replace(folder / "gangline-gpus.json")


def test_registers_and_answers_while_it_does(folder: Path, kubelet: Start, plugin: Start) -> None:
    node, running = kubelet(), plugin(*DGX1)

    request = node.requests.get(timeout=LIMIT_S)
    assert (request.version, request.endpoint, request.resource_name) == (
        "v1beta1",
        "nvidia.sock",
        "nvidia.com/gpu",
    )
    assert request.options == node.options
    assert node.options.get_preferred_allocation_available
    assert not node.options.pre_start_required
    assert node.devices.get(timeout=LIMIT_S) == {f"GPU-simulated-n-{index}": "Healthy" for index in range(8)}
    running.wait_for(REGISTERED)
    published = [
        "Loading NVML",
        "Fetching devices.",
        "Starting FS watcher.",
        "Starting OS watcher.",
        f"Starting to serve on {folder}/nvidia.sock",
        REGISTERED,
    ]
    assert [line for line in running.lines if line in published] == published
    assert "8 simulated GPUs, as this program was told: v100-dgx1" in running.lines


def test_registers_with_every_kubelet_that_starts(folder: Path, kubelet: Start, plugin: Start) -> None:
    running = plugin(*DGX1)
    for count in (1, 2):
        node = kubelet()
        assert node.requests.get(timeout=LIMIT_S).resource_name == "nvidia.com/gpu"
        assert len(node.devices.get(timeout=LIMIT_S)) == 8
        running.wait_for(REGISTERED, count)

    (folder / "nvidia.sock").unlink()

    assert node.requests.get(timeout=LIMIT_S).endpoint == "nvidia.sock"
    assert f"{folder}/kubelet.sock created, restarting." in running.lines
    assert f"{folder}/nvidia.sock removed, restarting." in running.lines


def test_a_gpu_that_fails_is_unhealthy_until_it_is_back(folder: Path, kubelet: Start, plugin: Start) -> None:
    two = simulate("n", 2)
    tell(folder, two)
    node, running = kubelet(), plugin()
    assert node.devices.get(timeout=LIMIT_S) == dict.fromkeys((gpu.uuid for gpu in two.gpus), "Healthy")

    tell(folder, with_unhealthy(two, frozenset({1})))
    assert node.devices.get(timeout=LIMIT_S) == {two.gpus[0].uuid: "Healthy", two.gpus[1].uuid: "Unhealthy"}
    tell(folder, two)
    assert node.devices.get(timeout=LIMIT_S) == dict.fromkeys((gpu.uuid for gpu in two.gpus), "Healthy")

    assert [line for line in running.lines if line.startswith("GPU ")] == [
        f"GPU {two.gpus[1].uuid} is Unhealthy",
        f"GPU {two.gpus[1].uuid} is Healthy",
    ]


def test_waits_where_there_is_no_gpu(folder: Path, kubelet: Start, plugin: Start) -> None:
    tell(folder, DeviceInventory())
    node, running = kubelet(), plugin()
    running.wait_for("No devices found. Waiting indefinitely.")
    assert node.requests.empty()

    tell(folder, simulate("n", 1))

    assert node.requests.get(timeout=LIMIT_S).resource_name == "nvidia.com/gpu"


def test_allocates_by_id_and_prefers_by_the_wires(kubelet: Start, plugin: Start) -> None:
    node, _ = kubelet(), plugin(*DGX1)
    devices = list(node.devices.get(timeout=LIMIT_S))

    wish = api.ContainerPreferredAllocationRequest(available_deviceIDs=devices, allocation_size=2)
    request = api.PreferredAllocationRequest(container_requests=[wish])
    answer = node.call("GetPreferredAllocation", request, api.PreferredAllocationResponse)
    assert list(answer.container_responses[0].deviceIDs) == ["GPU-simulated-n-0", "GPU-simulated-n-3"]

    given = node.allocate("GPU-simulated-n-3", "GPU-simulated-n-0")
    assert dict(given.envs) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-simulated-n-0,GPU-simulated-n-3",
        "CUDA_VISIBLE_DEVICES": "GPU-simulated-n-0,GPU-simulated-n-3",
    }
    assert not given.devices
    with pytest.raises(grpc.RpcError) as refused:
        node.allocate("GPU-simulated-n-9")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "unknown device: GPU-simulated-n-9"


def test_takes_its_socket_along_when_it_is_told_to_end(folder: Path, kubelet: Start, plugin: Start) -> None:
    kubelet()
    running = plugin(*DGX1)
    running.wait_for(REGISTERED)

    assert running.end() == 0

    assert not (folder / "nvidia.sock").exists()


def test_finds_gpus_by_nvml(tmp_path: Path, kubelet: Start, plugin: Start) -> None:
    """The library is a stand-in of the tests; there is no GPU behind it."""
    spec = importlib.util.spec_from_file_location("stand_in_nvml", STAND_IN)
    assert spec and spec.loader
    stand_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_in)
    if reason := stand_in.why_not():
        pytest.skip(reason)
    node = kubelet()
    running = plugin(LD_LIBRARY_PATH=str(stand_in.build(tmp_path)), STAND_IN_NVML_GPUS="2")

    first, *_ = devices = node.devices.get(timeout=LIMIT_S)
    running.wait_for(REGISTERED)
    assert set(devices.values()) == {"Healthy"}
    assert not [line for line in running.lines if line.startswith("Failed to initialize")]
    assert "2 real GPUs, as the driver shows them: Stand-in GPU" in running.lines
    assert dict(node.allocate(first).envs) == {"NVIDIA_VISIBLE_DEVICES": first}


def test_options_of_the_stock_plugin_are_taken_and_said_to_do_nothing(plugin: Start) -> None:
    running = plugin("--fail-on-init-error=false", "--simulate-gpus", "1")

    running.wait_for("--fail-on-init-error=false has no effect: it belongs to NVIDIA's plugin")
    assert plugin("--no-such-option").process.wait(LIMIT_S) == 2
