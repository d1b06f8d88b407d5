"""What a kubelet is answered: GPUs by the wires, variables and files by id."""

from __future__ import annotations

import pytest

pytest.importorskip("grpc", reason="needs grpcio")

from gangline.deviceplugin.answers import given, preferred
from gangline.deviceplugin.gpu_source import as_now
from gangline.deviceplugin.kubelet import refusal_of
from gangline.deviceplugin.v1beta1_pb2 import RegisterRequest
from gangline.devices.inventory import DeviceInventory, Gpu, with_unhealthy
from gangline.devices.simulated import simulate

DGX1 = simulate("n", 8, "v100-dgx1")
REAL = DeviceInventory("nvml", "Tesla T4", (Gpu("GPU-b", 1, 3), Gpu("GPU-a", 0, 0)))


def ids(*indices: int) -> list[str]:
    return [f"GPU-simulated-n-{index}" for index in indices]


@pytest.mark.parametrize(
    ("available", "included", "count", "chosen"),
    [
        # On a DGX-1 two NVLinks join 0-3, 0-4, 1-2, 1-5, 2-3 ..., one joins 0-1 and 0-2.
        (range(8), (), 2, (0, 3)),
        ((0, 1, 2, 5), (), 2, (1, 2)),
        (range(8), (1,), 2, (1, 2)),
        (range(8), (0, 4), 2, (0, 4)),
        (range(8), (), 4, (0, 1, 2, 3)),
        (range(8), (), 8, range(8)),
        ((6,), (), 2, (6,)),
        ((6,), (6,), 2, (6,)),
    ],
)
def test_gpus_that_the_best_wires_join_are_preferred(
    available: range, included: tuple[int, ...], count: int, chosen: tuple[int, ...]
) -> None:
    assert preferred(DGX1, ids(*available), ids(*included), count) == ids(*chosen)


def test_without_known_wires_the_lowest_indices_are_preferred() -> None:
    plain = simulate("n", 4)

    assert preferred(plain, ids(3, 1, 2), (), 2) == ids(1, 2)


def test_unknown_ids_and_no_gpus_are_no_reason_to_fail() -> None:
    assert preferred(DGX1, [*ids(5), "GPU-of-another-machine"], (), 1) == ids(5)
    assert preferred(DeviceInventory(), ["GPU-lost"], (), 1) == []


def test_sixteen_gpus_are_chosen_from_within_a_second() -> None:
    many = simulate("n", 16, "v100-dgx2")

    assert len(preferred(many, ids(*range(16)), ids(5), 8)) == 8


def test_a_real_gpu_is_given_by_its_id_with_its_file() -> None:
    found = given(REAL, ["GPU-b", "GPU-a"])

    assert found.variables == {"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    assert found.minors == [0, 3]


def test_cuda_finds_no_simulated_gpu() -> None:
    found = given(DGX1, ids(3, 0))

    names = ",".join(ids(0, 3))
    assert found.variables == {"NVIDIA_VISIBLE_DEVICES": names, "CUDA_VISIBLE_DEVICES": names}
    assert found.minors == []


def test_an_unknown_id_is_named() -> None:
    with pytest.raises(KeyError, match="GPU-lost"):
        given(REAL, ["GPU-a", "GPU-lost"])


def test_a_real_gpu_that_is_lost_is_unhealthy_until_it_is_back() -> None:
    lost = as_now(REAL, DeviceInventory("nvml", "Tesla T4", (Gpu("GPU-a", 0, 0),)))

    assert {gpu.uuid: gpu.healthy for gpu in lost.gpus} == {"GPU-a": True, "GPU-b": False}
    assert as_now(lost, REAL) == REAL


def test_simulated_gpus_are_as_they_are_simulated() -> None:
    broken = with_unhealthy(DGX1, frozenset({2}))

    assert as_now(DGX1, broken) == broken
    assert as_now(DGX1, DeviceInventory()) == DeviceInventory()


@pytest.mark.parametrize(
    ("version", "endpoint", "resource", "refusal"),
    [
        ("v1beta1", "nvidia.sock", "nvidia.com/gpu", ""),
        ("v1beta1", "a.sock", "nvidia.com/mig-1g.5gb", ""),
        ("v1alpha", "a.sock", "nvidia.com/gpu", "unsupported version"),
        ("v1beta1", "a.sock", "gpu", "invalid resource name"),
        ("v1beta1", "a.sock", "kubernetes.io/gpu", "invalid resource name"),
        ("v1beta1", "a.sock", "x.kubernetes.io/gpu", "invalid resource name"),
        ("v1beta1", "../a.sock", "nvidia.com/gpu", "invalid endpoint"),
        ("v1beta1", "", "nvidia.com/gpu", "invalid endpoint"),
    ],
)
def test_a_kubelet_refuses_what_it_cannot_serve(
    version: str, endpoint: str, resource: str, refusal: str
) -> None:
    request = RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)

    assert refusal_of(request).startswith(refusal)
    assert bool(refusal_of(request)) == bool(refusal)
