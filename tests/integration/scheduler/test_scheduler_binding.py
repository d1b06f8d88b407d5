"""The scheduler on the embedded API server; where pods go is decided, and tested, in placement."""

import asyncio

from gangline.api.resources import EVENTS, PODS
from gangline.scheduler.scheduler import Scheduler


async def test_a_pod_is_bound_and_the_event_says_so(cluster):
    await cluster.add_node("node-0")
    await cluster.add_pod("one")

    assert await cluster.until_bound("one") == "node-0"

    async def scheduled() -> list[str]:
        events = (await cluster.client.list(EVENTS, "default")).items
        return [event["message"] for event in events if event["reason"] == "Scheduled"]

    assert await cluster.until(scheduled) == ["Successfully assigned default/one to node-0"]


async def test_pods_of_another_scheduler_are_left_alone(cluster):
    await cluster.add_node("node-0")
    await cluster.add_pod("theirs", schedulerName="volcano")
    await cluster.add_pod("ours")
    await cluster.until_bound("ours")

    assert await cluster.node_of("theirs") == ""


async def test_a_pod_that_does_not_fit_says_why_once_and_goes_as_soon_as_there_is_room(cluster):
    await cluster.add_node("node-0", cpu="2")
    await cluster.add_pod("holder", cpu="2")
    await cluster.until_bound("holder")
    await cluster.add_pod("waiter", cpu="1")

    assert await cluster.until_unschedulable("waiter") == "0/1 nodes are available: 1 Insufficient cpu."

    await cluster.add_pod("other", cpu="3")
    await cluster.until_unschedulable("other")
    await cluster.client.patch(
        PODS, "holder", {"status": {"phase": "Succeeded"}}, "default", subresource="status"
    )
    assert await cluster.until_bound("waiter") == "node-0"

    async def failures() -> list[dict]:
        events = (await cluster.client.list(EVENTS, "default")).items
        return [
            event
            for event in events
            if event["reason"] == "FailedScheduling" and event["involvedObject"]["name"] == "waiter"
        ]

    [event] = await cluster.until(failures)
    assert (event["type"], event["count"]) == ("Warning", 1)


async def test_who_waited_behind_a_gang_that_is_deleted_unbound_is_bound_at_once(cluster):
    await cluster.add_node("node-0", cpu="4")
    await cluster.add_pod("holder", cpu="2", activeDeadlineSeconds=3600)
    await cluster.until_bound("holder")
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "ahead"}
    labels["pod-group.scheduling.sigs.k8s.io/min-available"] = "2"
    for index in range(2):
        await cluster.add_pod(f"ahead-{index}", cpu="2", labels=labels)
        await cluster.until_unschedulable(f"ahead-{index}")
    await cluster.add_pod("behind", cpu="2")
    said = "room is kept for default/ahead, which waits before it"
    assert said in await cluster.until_unschedulable("behind")

    for index in range(2):
        await cluster.client.delete(PODS, f"ahead-{index}", "default")
    async with asyncio.timeout(2):  # nothing else wakes the scheduler for 60 s
        assert await cluster.until_bound("behind") == "node-0"


async def test_a_pod_waits_for_a_node(cluster):
    await cluster.add_pod("early")
    assert await cluster.until_unschedulable("early") == "no nodes available to schedule pods"

    await cluster.add_node("node-0")

    assert await cluster.until_bound("early") == "node-0"


async def test_a_gated_pod_is_considered_when_its_gates_are_gone(cluster):
    await cluster.add_node("node-0")
    await cluster.add_pod("gated", schedulingGates=[{"name": "example.com/hold"}])
    await cluster.add_pod("free")
    await cluster.until_bound("free")
    assert await cluster.node_of("gated") == ""

    await cluster.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, "default")

    assert await cluster.until_bound("gated") == "node-0"


async def test_three_hundred_pods_at_once_never_overbook(cluster):
    for index in range(3):
        await cluster.add_node(f"node-{index}", cpu="100")
    await asyncio.gather(*(cluster.add_pod(f"pod-{index}", cpu="1") for index in range(310)))

    async def settled() -> dict[str, int]:
        counts: dict[str, int] = {}
        for pod in (await cluster.client.list(PODS, "default")).items:
            node = pod["spec"].get("nodeName", "")
            counts[node] = counts.get(node, 0) + 1
        return counts if counts.get("", 0) == 10 else {}

    counts = await cluster.until(settled)
    assert counts == {"node-0": 100, "node-1": 100, "node-2": 100, "": 10}


async def test_a_gang_whose_pods_come_one_by_one_costs_few_passes_and_no_writes_about_it(idle_cluster):
    size = 100
    scheduler = Scheduler(idle_cluster.client)
    task = asyncio.create_task(scheduler.run())
    try:
        await idle_cluster.add_node("node-0", cpu=str(size))
        await idle_cluster.add_pod("first")
        await idle_cluster.until_bound("first")
        before = scheduler.statistics().passes.statistics().count
        patches = patches_of(idle_cluster)
        words = "pod-group.scheduling.sigs.k8s.io"
        labels = {f"{words}/name": "g", f"{words}/min-available": str(size)}
        for index in range(size):
            await idle_cluster.add_pod(f"g-{index}", labels=labels)
            if index < size - 1:
                assert await idle_cluster.node_of(f"g-{index}") == ""
        for index in range(size):
            await idle_cluster.until_bound(f"g-{index}")
        assert scheduler.statistics().passes.statistics().count - before < size / 5
        assert patches_of(idle_cluster) == patches
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def patches_of(cluster) -> int:
    return sum(count for (method, _), count in cluster.client.answers().items() if method == "PATCH")
