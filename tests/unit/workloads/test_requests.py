"""What a pod asks for, by the rule of Kubernetes' PodRequests, and who gets which of its GPUs."""

from decimal import Decimal
from typing import Any

import pytest

from gangline.workloads.gpus import gpu_shares, read_gpus
from gangline.workloads.requests import gpu_count, pod_gpus, pod_requests, read_gpu_count, read_spec

GPU = "nvidia.com/gpu"


def asks(requests: dict[str, Any], name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}, **more}


def sidecar(requests: dict[str, Any], name: str = "s") -> dict[str, Any]:
    return asks(requests, name, restartPolicy="Always")


def total(*containers: dict[str, Any], init: Any = (), **spec: Any) -> dict[str, str]:
    found = pod_requests(read_spec({"containers": list(containers), "initContainers": list(init), **spec}))
    return {name: f"{amount.normalize():f}" for name, amount in found.items()}


# Cases and totals after TestPodRequestsAndLimits of k8s.io/component-helpers/resource.
@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(total(asks({"cpu": "1"}), asks({"cpu": "500m"})), {"cpu": "1.5"}, id="containers"),
        pytest.param(
            total(asks({"cpu": "1"}), init=[asks({"cpu": "3", "memory": "10"})]),
            {"cpu": "3", "memory": "10"},
            id="an init container runs alone",
        ),
        pytest.param(
            total(asks({"cpu": "2"}), init=[sidecar({"cpu": "1"}), asks({"cpu": "1.5"})]),
            {"cpu": "3"},
            id="a sidecar runs beside all that come after it",
        ),
        pytest.param(
            total(asks({"cpu": "2"}), init=[sidecar({"cpu": "1"}), asks({"cpu": "3"})]),
            {"cpu": "4"},
            id="also beside an init container",
        ),
        pytest.param(
            total(asks({"cpu": "2"}), init=[asks({"cpu": "3"}), sidecar({"cpu": "2"})]),
            {"cpu": "4"},
            id="not beside an init container before it",
        ),
        pytest.param(
            total(asks({"cpu": "1"}), overhead={"cpu": "250m", "memory": "120Mi"}),
            {"cpu": "1.25", "memory": str(120 << 20)},
            id="overhead comes on top",
        ),
        pytest.param(
            total(
                asks({"cpu": "1", GPU: 2}),
                resources={"requests": {"cpu": "6"}, "limits": {GPU: 9}},
                overhead={"cpu": 1},
            ),
            {"cpu": "7", GPU: "2"},
            id="amounts of the pod as a whole",
        ),
        pytest.param(
            total(asks({"aliyun.com/gpu": 2}), init=[asks({GPU: 3})]), {GPU: "3"}, id="names of the same GPUs"
        ),
        pytest.param(
            total({"name": "c", "resources": {"requests": {"cpu": 1}, "limits": {"cpu": 2, GPU: 1}}}),
            {"cpu": "1", GPU: "1"},
            id="a limit alone is a request",
        ),
    ],
)
def test_what_a_pod_asks_for(found: dict[str, str], want: dict[str, str]) -> None:
    assert found == want


def test_a_quantity_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="lots"):
        total(asks({"cpu": "lots"}))


@pytest.mark.parametrize(
    "spec", [None, "x", {"containers": "x"}, {"containers": ["x", {"resources": {"limits": None}}]}]
)
def test_what_has_another_type_asks_for_nothing(spec: Any) -> None:
    assert pod_gpus(spec) == 0


def test_gpus_of_all_makers_count() -> None:
    spec = {"containers": [asks({GPU: 2}), asks({"amd.com/gpu": "2", "gpu.intel.com/i915": 1})]}

    assert pod_gpus(spec) == 5
    assert gpu_count({GPU: Decimal("0.5"), "cpu": Decimal(7)}) == 1
    assert read_gpu_count({GPU: "8", "cpu": "64"}) == 8


def test_a_slice_of_a_gpu_counts_as_one() -> None:
    spec = {"containers": [asks({"nvidia.com/mig-3g.40gb": "2", "amd.com/cpx_nps4": 1, "rdma/hca": 4})]}

    assert pod_gpus(spec) == 3
    assert read_gpu_count({"nvidia.com/mig-1g.10gb": "7", "nvidia.com/migrate": "1"}) == 7


def shares(*containers: dict[str, Any], init: Any = ()) -> dict[str, list[int]]:
    spec = read_spec({"containers": list(containers), "initContainers": list(init)})
    found = gpu_shares(spec)
    most = max((share.stop for share in found.values()), default=0)
    assert most == pod_requests(spec).get(GPU, 0), "all shares together are what the pod asks for"
    return {name: list(share) for name, share in found.items()}


def test_containers_that_run_together_share_no_gpu_and_init_containers_use_those_of_later_ones() -> None:
    assert shares(asks({GPU: 1}, "a"), asks({}, "b"), asks({GPU: 2}, "c")) == {"a": [0], "c": [1, 2]}
    assert shares(asks({GPU: 2}, "a"), init=[asks({GPU: 4}, "i")]) == {"i": [0, 1, 2, 3], "a": [0, 1]}
    init = [asks({GPU: 1}, "i"), sidecar({GPU: 1}), asks({GPU: 3}, "j")]
    assert shares(asks({GPU: 2}, "a"), init=init) == {"i": [0], "s": [0], "j": [1, 2, 3], "a": [1, 2]}


def test_the_annotation_is_read_or_refused() -> None:
    assert read_gpus('{"worker": ["GPU-1", "GPU-2"]}') == {"worker": ["GPU-1", "GPU-2"]}
    assert read_gpus("") == read_gpus(None) == {}
    for text in ("GPU-1", "[]", '{"worker": "GPU-1"}', '{"worker": [1]}', "{"):
        with pytest.raises(ValueError, match=r"gangline.dev/gpus must be a JSON object"):
            read_gpus(text)
