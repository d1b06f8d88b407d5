"""What a pod asks for, in integers."""

from typing import Any

import pytest

from gangline.api.core import Container, PodSpec, ResourceRequirements
from gangline.placement.amounts import capacity_amounts, pod_request


def container(requests: dict[str, Any], limits: dict[str, Any] | None = None, restart: str = "") -> Container:
    resources = ResourceRequirements(requests=requests, limits=limits or {})
    return Container(name="c", resources=resources, restart_policy=restart)


def test_containers_add_up_and_every_pod_counts_as_one():
    spec = PodSpec(containers=[container({"cpu": "500m", "memory": "1Gi"}), container({"cpu": 1.5})])

    assert pod_request(spec) == {"cpu": 2000, "memory": 1 << 30, "pods": 1}


def test_a_limit_without_a_request_counts_as_the_request():
    spec = PodSpec(containers=[container({"cpu": "1"}, {"cpu": "2", "nvidia.com/gpu": 2})])

    assert pod_request(spec) == {"cpu": 1000, "nvidia.com/gpu": 2, "pods": 1}


def test_an_init_container_runs_alone():
    spec = PodSpec(
        containers=[container({"cpu": "1"})], init_containers=[container({"cpu": "3", "memory": "1"})]
    )

    assert pod_request(spec) == {"cpu": 3000, "memory": 1, "pods": 1}


def test_a_sidecar_runs_beside_later_init_containers_and_the_containers():
    spec = PodSpec(
        containers=[container({"cpu": "2"})],
        init_containers=[container({"cpu": "1"}, restart="Always"), container({"cpu": "1.5"})],
    )

    assert pod_request(spec) == {"cpu": 3000, "pods": 1}


def test_requests_round_up_and_capacity_rounds_down():
    assert pod_request(PodSpec(containers=[container({"cpu": "100u", "memory": "1.5"})])) == {
        "cpu": 1,
        "memory": 2,
        "pods": 1,
    }
    assert capacity_amounts({"cpu": "1.9999", "memory": "1.5", "pods": "110"}) == {
        "cpu": 1999,
        "memory": 1,
        "pods": 110,
    }


def test_a_quantity_that_is_none_is_an_error():
    with pytest.raises(ValueError, match="lots"):
        pod_request(PodSpec(containers=[container({"cpu": "lots"})]))
