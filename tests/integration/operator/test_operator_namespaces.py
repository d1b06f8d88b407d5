"""One operator for all namespaces, and one for a single namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangline.api.resources import MPIJOBS, NAMESPACES, PODS
from gangline.kube.client import Client

Build = Callable[..., dict[str, Any]]


@pytest.fixture
def operator_namespace() -> str:
    return ""


async def test_jobs_of_other_namespaces_do_not_meet(cluster: Any, make_job: Build, client: Client) -> None:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b"}})
    other = make_job()
    other["metadata"]["namespace"] = "b"
    await cluster.submit(make_job())
    await cluster.submit(other)
    await cluster.some_pods("worker", 2)

    async def both() -> list[Any]:
        found = (await client.list(PODS, "b", label_selector="training.kubeflow.org/job-role=worker")).items
        return found if len(found) == 2 else []

    await cluster.until(both)
    await client.delete(MPIJOBS, "pi", "b")

    assert len(await cluster.pods("worker")) == 2
