"""Claims of devices: what they ask for, hold, and are refused for; placement by the wires of slices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gangline.deviceplugin.dra_objects import cdi_spec, given_devices, resource_slice
from gangline.devices.inventory import with_unhealthy
from gangline.devices.simulated import simulate
from gangline.placement import Binding, Decisions, NodeView, PodView, Policy, Snapshot, schedule
from gangline.placement.claims.device_claims import ClaimRefused, DeviceClaims
from gangline.workloads.device_class import DEVICE_CLASS, DRIVER
from gangline.workloads.requests import GPU

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Obj = dict[str, Any]


def claim(name: str, count: int = 2, *, selector: str = "", status: Obj | None = None, **exactly: Any) -> Obj:
    more = {"selectors": [{"cel": {"expression": selector}}]} if selector else {}
    request = {"name": "gpus", "exactly": {"deviceClassName": DRIVER, "count": count, **more, **exactly}}
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [request]}},
        "status": status or {},
    }


def known(*claims: Obj, unhealthy: frozenset[int] = frozenset()) -> DeviceClaims:
    found = DeviceClaims()
    slices = [
        resource_slice(with_unhealthy(simulate(node, 4, "v100-dgx1"), unhealthy), node, f"uid-{node}")
        for node in ("n0", "n1")
    ]
    found.take(slices, [DEVICE_CLASS], claims)
    return found


def pod(name: str, *claims: str, **more: Any) -> PodView:
    return PodView(
        key=f"default/{name}",
        uid=f"uid-{name}",
        shape=b"same",
        device_claims=tuple((one, one) for one in claims),
        claim_users=tuple(("main", one, "") for one in claims),
        **more,
    )


def node(name: str) -> NodeView:
    return NodeView(name=name, allocatable={"cpu": 8000, "pods": 100})


def decide(devices: DeviceClaims, *pods: PodView, held: tuple[PodView, ...] = ()) -> Decisions:
    nodes = tuple(devices.on_node(node(name)) for name in ("n0", "n1", "n2"))
    waiting = [devices.applied(one) for one in pods]
    snapshot = Snapshot(nodes=nodes, pods=held, claimed=frozenset(devices.held))
    return schedule(snapshot, waiting, now=NOW, policy=Policy())


def allocated(devices: DeviceClaims, binding: Binding, name: str) -> Obj:
    return devices.allocated(f"default/{name}", [binding])


def allocate(devices: DeviceClaims, binding: Binding, name: str) -> None:
    found = {**devices.claims[f"default/{name}"], "status": allocated(devices, binding, name)}
    devices.take_claim(f"default/{name}", found)


def test_a_claim_gets_the_gpus_with_the_fastest_wires_of_a_node_that_publishes_some() -> None:
    devices = known(claim("a"))
    (binding,) = decide(devices, pod("one", "a")).bindings
    assert binding.node == "n0"
    # Two NVLinks join 0 with 3 and 1 with 2, one all others of the first four GPUs of a DGX-1.
    assert binding.claims == (("a", "gpus", ("GPU-simulated-n0-0", "GPU-simulated-n0-3")),)
    assert binding.gpus == (("main", ("GPU-simulated-n0-0", "GPU-simulated-n0-3")),)
    status = allocated(devices, binding, "a")
    allocation = status["allocation"]
    assert [(one["pool"], one["device"], one["request"]) for one in allocation["devices"]["results"]] == [
        ("n0", "gpu-0", "gpus"),
        ("n0", "gpu-3", "gpus"),
    ]
    (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    assert status["reservedFor"] == [{"resource": "pods", "name": "one", "uid": "uid-one"}]


def test_what_a_claim_holds_is_given_to_nobody_else() -> None:
    devices = known(claim("a"), claim("b", 3))
    (first,) = decide(devices, pod("one", "a")).bindings
    allocate(devices, first, "a")
    held = devices.applied(pod("one", "a", node_name="n0"))
    assert held.request[GPU] == 2
    assert held.gpu_uuids == ("GPU-simulated-n0-0", "GPU-simulated-n0-3")
    (second,) = decide(devices, pod("two", "b"), held=(held,)).bindings
    assert second.node == "n1"
    devices.take_claim("default/c", claim("c"))
    late = first.__class__("default/late", "uid-late", "n0", claims=(("c", "gpus", ("GPU-simulated-n0-3",)),))
    with pytest.raises(ClaimRefused, match="has been given away"):
        allocated(devices, late, "c")


def test_a_claim_never_gets_a_device_that_its_selectors_leave_out() -> None:
    """Pods of one gang are placed alike: where they ask differently, one of them would get the other's."""
    last = 'device.attributes["gpu.gangline.dev"].index == 3'
    devices = known(claim("a", 1), claim("b", 1, selector=last))
    (binding,) = decide(devices, pod("one", "a")).bindings
    swapped = msgspec.structs.replace(binding, claims=(("b", *binding.claims[0][1:]),))

    with pytest.raises(ClaimRefused, match="is not for request gpus of claim b by its selectors"):
        allocated(devices, swapped, "b")


def test_limits_and_claims_never_share_the_gpus_of_a_node() -> None:
    by_limit = PodView(key="default/limit", uid="limit", request={GPU: 1}, gpu_shares=(("main", 0, 1),))
    (told,) = decide(known(), by_limit).unschedulable
    assert "2 node(s) give their GPUs to resource claims alone" in told.message


def test_a_pod_of_an_allocated_claim_goes_to_its_node() -> None:
    devices = known(claim("a"))
    first = decide(devices, pod("one", "a")).bindings[0]
    given = (("a", "gpus", ("GPU-simulated-n1-0", "GPU-simulated-n1-1")),)
    allocate(devices, Binding("default/one", "uid-one", "n1", claims=given), "a")
    assert first.node == "n0"
    (binding,) = decide(devices, pod("two", "a")).bindings
    assert (binding.node, binding.claims) == ("n1", ())
    assert [one["name"] for one in allocated(devices, binding, "a")["reservedFor"]] == ["one", "two"]


def test_a_selector_and_health_narrow_the_choice() -> None:
    numa = claim("a", 1, selector=f'device.attributes["{DRIVER}"].index in [2, 3]')
    (binding,) = decide(known(numa, unhealthy=frozenset({2})), pod("one", "a")).bindings
    assert binding.claims[0][2] == ("GPU-simulated-n0-3",)
    large = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("1Ti")) >= 0'
    (told,) = decide(known(claim("a", 1, selector=large)), pod("one", "a")).unschedulable
    assert told.message == (
        "0/3 nodes are available: 3 node(s) had no device of class gpu.gangline.dev for request gpus."
    )


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (claim("a", selector='device.driver.find("gpu") == ""'), "not served here: `find()`"),
        (claim("a", allocationMode="Half"), "allocationMode Half is not served"),
        (claim("a", capacity={"requests": {"memory": "1G"}}), "capacity is not served"),
        (claim("a", derivedAttributes=[{"name": "x"}]), "derivedAttributes is not served"),
        (claim("a", deviceClassName="gpu.example.com"), "device class gpu.example.com does not exist"),
    ],
)
def test_what_is_not_served_is_named(wrong: Obj, why: str) -> None:
    (told,) = decide(known(wrong), pod("one", "a")).unschedulable
    assert why in told.message
    assert "claim a" in told.message


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"requests": [{"name": "gpus", "laterAvailable": []}]}, "neither exactly nor firstAvailable"),
        ({"constraints": [{"sameRack": True}]}, "of constraints matchAttribute and distinctAttribute"),
        ({"requests": []}, "claim a has no requests"),
    ],
)
def test_forms_of_requests_that_are_not_served_are_named(change: Obj, why: str) -> None:
    wrong = claim("a")
    wrong["spec"]["devices"] |= change
    (told,) = decide(known(wrong), pod("one", "a")).unschedulable
    assert why in told.message


def test_devices_with_a_taint_are_for_nobody() -> None:
    devices = known(claim("a", 2))
    tainted = resource_slice(simulate("n0", 4, "v100-dgx1"), "n0", "uid-n0")
    for index, effect in ((0, "NoSchedule"), (3, "NoExecute"), (1, "None")):
        tainted["spec"]["devices"][index]["taints"] = [{"key": "k", "value": "v", "effect": effect}]
    devices.take_slice(tainted)

    (binding,) = decide(devices, pod("one", "a"), held=()).bindings

    given = {uuid for _, _, uuids in binding.claims for uuid in uuids}
    assert not given & {"GPU-simulated-n0-0", "GPU-simulated-n0-3"}


def test_a_claim_that_is_not_there_yet_is_waited_for() -> None:
    (told,) = decide(known(), pod("one", "a")).unschedulable
    assert "waits for resource claim default/a, which does not exist" in told.message
    (told,) = decide(DeviceClaims(), pod("one", "a")).unschedulable
    assert "cannot read resource.k8s.io/v1" in told.message


def test_a_slice_says_what_the_driver_knows_and_its_file_gives_it() -> None:
    inventory = simulate("n0", 4, "v100-dgx1")
    spec = resource_slice(inventory, "n0", "uid")["spec"]
    assert spec["devices"][0]["attributes"]["links"] == {"string": " ".join(inventory.links[0])}
    assert spec["devices"][0]["capacity"] == {"memory": {"value": "16G"}}
    result = {"driver": DRIVER, "pool": "n0", "device": "gpu-3", "request": "gpus"}
    other = {**result, "pool": "n1"}
    status = {"allocation": {"devices": {"results": [result, other]}}}
    devices = given_devices(claim("a", status=status), "n0")
    (device,) = cdi_spec(inventory, "uid-a", devices)["devices"]
    assert device["name"] == "uid-a-gpus"
    assert "NVIDIA_VISIBLE_DEVICES=GPU-simulated-n0-3" in device["containerEdits"]["env"]
