"""What the operator believes after its own writes, whatever order answers and watch events come in."""

from __future__ import annotations

from typing import Any

import pytest
from fake_client import FakeClient

from gangline.api.mpijob import AnyJob
from gangline.api.resources import PODS
from gangline.jobs.plan import Create, Delete, Patch, Plan
from gangline.jobs.registry import JOB_KINDS
from gangline.kube.errors import Forbidden
from gangline.operator.children import Children, JobKey
from gangline.operator.execution import Execution, PlanResult

KEY = JobKey("MPIJob", "ns", "pi")
JOB_LABELS = {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "pi"}


def pod(version: str = "7", **meta: Any) -> dict[str, Any]:
    """A worker as the server answers it."""
    metadata = {
        "name": "pi-worker-0",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": version,
        "labels": JOB_LABELS,
        **meta,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


async def carry_out(
    action: Create | Delete | Patch, live: dict[str, Any] | None = None, failure: Exception | None = None
) -> tuple[Children, PlanResult]:
    client = FakeClient()
    if live is not None:
        await client.create(PODS, live)
    client.failures = [failure]
    children = Children(client, JOB_KINDS[0], None, lambda key: None)
    outcome = await Execution(client).run(KEY, AnyJob(), children, Plan(stages=((action,),)))
    return children, outcome


async def test_a_created_pod_is_believed_in_before_the_watch_shows_it() -> None:
    children, _ = await carry_out(Create(PODS, pod()))

    assert set(children.observe(KEY).pods) == {"pi-worker-0"}


async def test_a_pod_that_was_deleted_at_once_is_not_believed_in() -> None:
    """A server answers the deletion of a pod without a node with the pod's last state."""
    last = pod(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0)

    children, _ = await carry_out(Delete(PODS, "ns", "pi-worker-0", "u"), last)

    assert children.observe(KEY).pods == {}


@pytest.mark.parametrize("keeps", [{"deletionGracePeriodSeconds": 30}, {"finalizers": ["x.dev/y"]}])
async def test_a_pod_that_is_on_its_way_out_is_still_there(keeps: dict[str, Any]) -> None:
    going = pod(deletionTimestamp="2026-01-01T00:00:00Z", **keeps)

    children, _ = await carry_out(Delete(PODS, "ns", "pi-worker-0", "u"), going)

    assert children.observe(KEY).pods["pi-worker-0"].metadata.deletion_timestamp


@pytest.mark.parametrize(("version", "is_believed"), [("7", False), ("9", True)])
async def test_an_answer_that_is_older_than_the_cache_brings_nothing_back(
    version: str, is_believed: bool
) -> None:
    children = Children(FakeClient(), JOB_KINDS[0], None, lambda key: None)
    children.caches[PODS.plural]._version = "8"

    children.remember(KEY, PODS, pod(version))

    assert bool(children.observe(KEY).pods) is is_believed


async def test_the_end_of_a_namespace_is_waited_for_and_is_no_error() -> None:
    causes = [{"reason": "NamespaceTerminating"}]
    refusal = Forbidden(403, "Forbidden", "is being terminated", {"causes": causes})

    _, outcome = await carry_out(Create(PODS, pod()), failure=refusal)

    assert outcome.has_leftovers
    assert outcome.failed == []


async def test_where_only_updates_are_allowed_a_change_is_an_update() -> None:
    """The MPI operator's ClusterRole has list and update of config maps, services and jobs, and no patch."""
    refusal = Forbidden(403, "Forbidden", "cannot patch")
    patch = Patch(PODS, "ns", "pi-worker-0", {"metadata": {"labels": {"a": "b"}}})

    children, outcome = await carry_out(patch, pod(), refusal)

    assert outcome.is_good
    assert children.observe(KEY).pods["pi-worker-0"].metadata.labels == {**JOB_LABELS, "a": "b"}


async def test_a_pod_that_a_lagging_watch_still_shows_is_gone_once_it_is_deleted() -> None:
    """Else a job that is resumed meanwhile would not have it made again."""
    client = FakeClient()
    await client.create(PODS, pod())
    children = Children(client, JOB_KINDS[0], None, lambda key: None)
    await children.caches["pods"]._relist()
    assert set(children.observe(KEY).pods) == {"pi-worker-0"}

    plan = Plan(stages=((Delete(PODS, "ns", "pi-worker-0", "u"),),))
    await Execution(client).run(KEY, AnyJob(), children, plan)

    assert children.caches["pods"].items()
    assert children.observe(KEY).pods == {}
