"""Volumes decide where pods may be, and claims that are not bound say what they wait for."""

from typing import Any

import msgspec
import pytest
from gang_scenes import NOW, dgx

from gangline.api.core import Pod
from gangline.placement.claims.volumes import Storage, read_claim, read_class, read_volume
from gangline.placement.cycle import schedule
from gangline.placement.snapshot import PodView, Snapshot

ON_B = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}


def claim(phase: str = "Bound", volume: str = "pv", storage_class: str = "") -> dict[str, Any]:
    return {
        "spec": {"volumeName": volume, "storageClassName": storage_class},
        "status": {"phase": phase},
    }


def storage(**claims: dict[str, Any]) -> Storage:
    found = Storage()
    found.is_known = True
    found.claims = {f"team/{name}": read_claim(value) for name, value in claims.items()}
    found.volumes = {
        "pv": read_volume({"spec": {}}),
        "local": read_volume({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [ON_B]}}}}),
    }
    found.classes = {
        "fast": read_class({"volumeBindingMode": "Immediate", "provisioner": "x"}),
        "lazy": read_class({"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "x"}),
        "disk": read_class(
            {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "kubernetes.io/no-provisioner"}
        ),
    }
    return found


def pod(*claims: str) -> PodView:
    volumes = [
        {"name": f"v{index}", "persistentVolumeClaim": {"claimName": name}}
        for index, name in enumerate(claims)
    ]
    value = {
        "metadata": {"name": "p", "namespace": "team", "uid": "p"},
        "spec": {"containers": [{"name": "c"}], "volumes": [*volumes, {"name": "e", "emptyDir": {}}]},
    }
    return PodView.from_pod(msgspec.convert(value, Pod))


def outcome(found: Storage, *claims: str) -> str:
    """Return the node that the pod gets, or why it waits."""
    nodes = tuple(dgx(name, **{"kubernetes.io/hostname": name}) for name in "ab")
    decided = schedule(Snapshot(nodes=nodes), [found.applied(pod(*claims))], now=NOW)
    return decided.bindings[0].node if decided.bindings else decided.waits[0].message


def test_a_pod_goes_where_its_local_volume_is():
    assert outcome(storage(data=claim(volume="local")), "data") == "b"
    assert outcome(storage(data=claim(volume="local"), more=claim()), "more", "data") == "b"


def test_volumes_that_any_node_reaches_decide_nothing():
    assert outcome(storage(data=claim()), "data") == "a"


def test_a_node_without_its_volume_is_told_in_the_wording_of_kubernetes():
    nodes = (dgx("a", **{"kubernetes.io/hostname": "a"}),)
    found = storage(data=claim(volume="local")).applied(pod("data"))

    decided = schedule(Snapshot(nodes=nodes), [found], now=NOW)

    assert decided.unschedulable[0].message == (
        "0/1 nodes are available: 1 node(s) had volume node affinity conflict."
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (storage(), "waits for claim team/data, which does not exist"),
        (storage(data=claim("Pending", "", "fast")), "waits for claim team/data to be bound to a volume"),
        (storage(data=claim("Pending", "", "")), "waits for claim team/data to be bound to a volume"),
        (storage(data=claim("Pending", "pv", "")), "waits for claim team/data to be bound to a volume"),
        (storage(data=claim(volume="gone")), "waits for volume gone of claim team/data"),
        (storage(data=claim("Pending", "", "disk")), "this scheduler chooses no volume of class disk"),
    ],
)
def test_what_a_claim_waits_for_is_told(found: Storage, words: str):
    assert words in outcome(found, "data")


def test_a_claim_that_waits_for_its_first_pod_keeps_it_not_waiting_and_is_told_the_node():
    found = storage(data=claim("Pending", "", "lazy"), more=claim())

    assert outcome(found, "data", "more") == "a"
    assert found.selects_node(pod("data", "more")) == ["data"]


def ephemeral(name: str = "p") -> PodView:
    value = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {
            "containers": [{"name": "c"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
        },
    }
    return PodView.from_pod(msgspec.convert(value, Pod))


def owned(uid: str, **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    return {"metadata": {"ownerReferences": [owner]}} | claim(**more)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({}, "waits for claim team/p-scratch of its ephemeral volume, which is being made"),
        ({"p-scratch": claim()}, "one of that name exists and is not its own"),
        ({"p-scratch": owned("uid-q")}, "one of that name exists and is not its own"),
        ({"p-scratch": owned("uid-p", phase="Pending", volume="")}, "to be bound to a volume"),
    ],
)
def test_a_pod_waits_for_the_claims_of_its_ephemeral_volumes(claims: dict[str, Any], words: str):
    decided = schedule(Snapshot(nodes=(dgx("a"),)), [storage(**claims).applied(ephemeral())], now=NOW)
    assert words in decided.waits[0].message


def test_a_claim_of_an_ephemeral_volume_counts_as_any_other_once_it_is_there():
    nodes = tuple(dgx(name, **{"kubernetes.io/hostname": name}) for name in "ab")
    bound = storage(**{"p-scratch": owned("uid-p", volume="local")})
    lazy = storage(**{"p-scratch": owned("uid-p", phase="Pending", volume="", storage_class="lazy")})

    decided = schedule(Snapshot(nodes=nodes), [bound.applied(ephemeral())], now=NOW)
    assert [binding.node for binding in decided.bindings] == ["b"]
    assert lazy.selects_node(ephemeral()) == ["p-scratch"]
    assert schedule(Snapshot(nodes=nodes), [lazy.applied(ephemeral())], now=NOW).bindings


def test_where_nobody_tells_of_claims_they_decide_nothing():
    assert outcome(Storage(), "data") == "a"
