"""Whether the scheduler that pods wait for runs, by its Lease, else by what it did to the pods."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fake_client import FakeClient

from gangline.api.resources import CLUSTER_ROLE_BINDINGS, LEASES
from gangline.client.explain.scheduler import (
    SchedulerLiveness,
    judge,
    published_by,
    see_schedulers,
    with_schedulers,
)
from gangline.client.target import ClusterTarget
from gangline.clock import format_micro_time, now
from gangline.installation.objects import Installation, objects
from gangline.scheduler.explained.published import Published

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OURS = "gangline-scheduler"


def lease(name: str = OURS, *, age_s: float = 2, holder: str = "host-a", **notes: str) -> dict[str, Any]:
    renewed = format_micro_time(NOW - timedelta(seconds=age_s))
    return {
        "metadata": {"name": name, "namespace": "gangline-system", "annotations": notes},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
    }


def pod(age_s: float = 60, **status: Any) -> dict[str, Any]:
    created = (NOW - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"name": "p", "creationTimestamp": created}, "spec": {}, "status": status}


def refused() -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])


def see(name: str, *leases: dict[str, Any], pods: Any = None, **more: Any) -> SchedulerLiveness:
    return judge(name, leases, pods or [pod()], NOW, start="gangline scheduler", **more)


def test_a_lease_that_is_renewed_tells_of_a_living_scheduler():
    seen = see(OURS, lease())

    assert (seen.state, seen.is_ours, seen.start) == ("runs", True, "")
    assert seen.message == "runs: `host-a` holds its Lease gangline-system/gangline-scheduler"


def test_a_lease_that_ran_out_tells_of_a_dead_one_and_what_starts_it():
    seen = see(OURS, lease(age_s=300))

    assert (seen.state, seen.start) == ("gone", "gangline scheduler")
    assert seen.message == (
        "does not run: its Lease gangline-system/gangline-scheduler was last renewed 5m ago"
    )


def test_a_lease_that_changes_is_alive_whatever_the_clock_of_its_holder_says():
    assert see(OURS, lease(age_s=300), was_renewed=True).state == "runs"


def test_a_lease_that_was_given_back_tells_of_a_stopped_one():
    assert see(OURS, lease(holder="")).message.endswith("was given back, and nobody holds it")


def test_without_a_lease_a_pod_that_nobody_looked_at_tells_of_none():
    seen = see(OURS)

    assert seen.state == "gone"
    assert seen.message == (
        "seems not to run: no Lease of it is there, and nobody has looked at these pods in 60s"
    )


def test_without_a_lease_a_pod_that_was_looked_at_leaves_it_open():
    assert see(OURS, pods=[refused()]).state == "unknown"


def test_a_pod_that_was_made_just_now_leaves_it_open():
    assert see(OURS, pods=[pod(age_s=3)]).state == "unknown"


def test_a_lease_that_may_not_be_read_is_said_to_be_so():
    assert "its Lease may not be read" in judge(OURS, None, [pod()], NOW).message


def test_kube_scheduler_is_known_by_its_own_lease():
    seen = see("default-scheduler", lease("kube-scheduler"))

    assert (seen.state, seen.is_ours) == ("runs", False)


@pytest.mark.parametrize(
    ("name", "lease_name"), [("default-scheduler", "kube-scheduler"), ("volcano", "volcano")]
)
def test_a_scheduler_of_others_that_is_gone_is_not_ours_to_start(name, lease_name):
    seen = see(name, lease(lease_name, age_s=300))

    assert (seen.state, seen.start) == ("gone", "")


def test_kube_scheduler_is_not_ours_to_start_where_its_lease_is_not_there_either():
    seen = see("default-scheduler")

    assert (seen.state, seen.start) == ("gone", "")
    found = with_schedulers({"reason": "NoRoom", "message": "needs 8", "fix": ""}, [seen])
    assert found["fix"] == "starts when `default-scheduler` (kube-scheduler, of the control plane) runs"


def test_a_scheduler_under_another_name_is_known_by_what_its_lease_says():
    said = Published(names=("night",), levels=("example.com/rack",))

    seen = see("night", lease(**said.annotations))

    assert (seen.state, seen.is_ours, seen.published) == ("runs", True, said)
    assert (
        see(OURS, lease(**said.annotations)).state == "gone"
    )  # the Lease is that of a scheduler for other pods


@pytest.mark.parametrize(
    ("where", "told", "state"),
    [("gangline-system", "", "runs"), ("team", "", "gone"), ("team", "team", "runs")],
)
async def test_only_the_lease_of_its_own_namespace_is_the_schedulers(where, told, state):
    client, said = FakeClient(), Published(names=(OURS, "night"))
    made = lease(age_s=0, **said.annotations)
    made["spec"]["renewTime"] = format_micro_time(now())
    made["metadata"]["namespace"] = where
    await client.create(LEASES, made)
    target = ClusterTarget(context="tests", scheduler_namespace=told)
    pods = [pod() | {"spec": {"schedulerName": name}} for name in (OURS, "night")]

    seen = await see_schedulers(client, target, pods)

    assert [(one.name, one.state) for one in seen] == [(OURS, state), ("night", state)]
    assert {one.published for one in seen} == {said if state == "runs" else None}


@pytest.mark.parametrize(
    ("where", "state", "start"), [("ml", "runs", ""), ("team", "gone", " --lock-namespace ml")]
)
async def test_the_scheduler_is_where_its_rights_are_bound_and_nobody_elses_lease_counts(
    where: str, state: str, start: str
) -> None:
    client = FakeClient()
    made = lease(age_s=0, **Published(names=(OURS,)).annotations)
    made["spec"]["renewTime"] = format_micro_time(now())
    made["metadata"]["namespace"] = where
    await client.create(LEASES, made)
    for found in objects(Installation(namespace="ml")):
        if found["kind"] == "ClusterRoleBinding":
            await client.create(CLUSTER_ROLE_BINDINGS, found)

    waits = pod() | {"spec": {"schedulerName": OURS}}
    [seen] = await see_schedulers(client, ClusterTarget(context="tests"), [waits])

    assert seen.state == state
    assert seen.start == (start and f"gangline scheduler --context tests{start}")


async def test_what_the_lease_of_another_scheduler_says_is_not_taken_for_ours():
    client, said = FakeClient(), Published(names=("volcano",))
    made = lease("volcano", **said.annotations)
    made["spec"]["renewTime"] = format_micro_time(now())
    await client.create(LEASES, made)

    [seen] = await see_schedulers(
        client, ClusterTarget(context="tests"), [pod() | {"spec": {"schedulerName": "volcano"}}]
    )

    assert (seen.state, seen.is_ours, seen.published, seen.answers_at) == ("runs", False, None, None)


def test_options_of_the_scheduler_are_used_where_it_says_them():
    said = Published(names=(OURS,), preempt=False)

    assert published_by([SchedulerLiveness(OURS, "runs", "", published=said)]) == said
    assert "gangline.dev/rack" in published_by([SchedulerLiveness("volcano", "runs", "")]).levels


@pytest.mark.parametrize(
    ("reason", "message", "fix"),
    [
        ("Fits", "there is room for it, and nobody places it", "starts when `night` runs"),
        ("NoRoom", "needs 8", "starts when `night` runs; fits when x ends"),
    ],
)
def test_a_scheduler_that_does_not_run_is_the_first_reason(reason, message, fix):
    value = {"reason": reason, "message": "needs 8", "fix": "" if reason == "Fits" else "fits when x ends"}

    found = with_schedulers(value, [SchedulerLiveness("night", "gone", "does not run", start="start")])

    assert (found["reason"], found["message"], found["fix"]) == ("NoScheduler", message, fix)
    assert found["schedulers"] == [
        {"name": "night", "state": "gone", "message": "does not run", "start": "start"}
    ]


def test_nothing_is_promised_for_a_scheduler_of_others():
    value = {"reason": "Fits", "message": "the next pass places it", "fix": ""}

    found = with_schedulers(value, [SchedulerLiveness("volcano", "runs", "runs")])

    assert found["message"] == "there is room for it: `volcano` may place it, if it runs"
    ours = with_schedulers(value, [SchedulerLiveness(OURS, "runs", "runs", is_ours=True)])
    assert ours["message"] == "the next pass places it"
