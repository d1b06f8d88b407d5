"""The scheduler on the embedded API server; where pods go is decided, and tested, in placement."""

import asyncio

from gangline.api.resources import EVENTS, PODS


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
