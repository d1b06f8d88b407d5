"""When the pods of a Deployment are ready, and what is said until then."""

from __future__ import annotations

from typing import Any

import pytest
from fake_client import FakeClient

from gangline.api.resources import DEPLOYMENTS, PODS
from gangline.errors import ClusterError
from gangline.installation.rollout import is_rolled_out, wait_until_ready, why_not


def deployment(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "operator", "namespace": "there", "generation": 2},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "operator"}}},
        "status": {"observedGeneration": 2, **status},
    }


READY = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}


def pod(reason: str) -> dict[str, Any]:
    waiting = {"name": "main", "state": {"waiting": {"reason": reason, "message": "no such image"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator-1", "namespace": "there", "labels": {"app": "operator"}},
        "spec": {},
        "status": {"phase": "Pending", "containerStatuses": [waiting]},
    }


@pytest.mark.parametrize(
    ("status", "is_there"),
    [
        (READY, True),
        ({**READY, "availableReplicas": 1}, False),
        ({**READY, "replicas": 3}, False),  # pods of the earlier template
        ({**READY, "updatedReplicas": 1}, False),
        ({**READY, "observedGeneration": 1}, False),
        ({}, False),
    ],
)
def test_all_pods_are_of_the_new_template_and_ready(status: dict[str, Any], is_there: bool) -> None:
    assert is_rolled_out(deployment(**status)) is is_there


def test_it_says_how_many_are_ready_and_what_holds_the_others_up() -> None:
    told = why_not(deployment(replicas=2, updatedReplicas=2, availableReplicas=1), [pod("ErrImagePull")])

    assert told == "1 of 2 pods ready; pod operator-1, container main: ErrImagePull: no such image"


def test_it_says_why_no_pod_could_be_made() -> None:
    failed = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}

    assert why_not(deployment(conditions=[failed]), []) == "0 of 2 pods ready; exceeded quota: small"


async def test_an_image_that_cannot_be_had_ends_the_wait_at_once() -> None:
    client, said = FakeClient(), list[str]()
    await client.create(DEPLOYMENTS, deployment())
    await client.create(PODS, pod("ErrImageNeverPull"))

    with pytest.raises(ClusterError) as caught:
        await wait_until_ready(client, [deployment()], said.append, timeout_s=60)

    assert "deployment/operator cannot start: pod operator-1" in caught.value.message
    assert "--image-prefix" in caught.value.hint
    assert said == [
        "waiting for deployment/operator: 0 of 2 pods ready; "
        "pod operator-1, container main: ErrImageNeverPull: no such image"
    ]


async def test_the_wait_has_an_end_and_names_what_it_waited_for() -> None:
    client = FakeClient()
    await client.create(DEPLOYMENTS, deployment(availableReplicas=1, updatedReplicas=1))

    with pytest.raises(
        ClusterError, match=r"deployment/operator is not ready after 0.01 s: 1 of 2 pods ready"
    ):
        await wait_until_ready(client, [deployment()], lambda line: None, timeout_s=0.01)
