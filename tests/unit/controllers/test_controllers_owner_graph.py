"""What the ownership graph says is to be done. Carrying it out is tested in tests/integration."""

from typing import Any

from gangline.api.core import OwnerReference
from gangline.api.resources import CONFIG_MAPS, NODES, PODS
from gangline.cluster.controllers.owner_graph import (
    FOREGROUND,
    ORPHAN,
    DeleteDependent,
    Finish,
    KeepOwners,
    Owned,
    OwnerGraph,
    Release,
    Verify,
)


def obj(uid: str, *owners: str, namespace: str = "team", block: bool = False, **more: Any) -> Owned:
    refs = tuple(
        OwnerReference(kind="Pod", name=name, uid=name, block_owner_deletion=block) for name in owners
    )
    return Owned(PODS, namespace, uid, uid, refs, **more)


def graph(*objects: Owned) -> OwnerGraph:
    result = OwnerGraph()
    for one in objects:
        result.put(one)
    return result


def test_an_object_without_owners_is_never_touched():
    assert graph(obj("a")).judge("a", set()) is None
    assert OwnerGraph().judge("unknown", set()) is None


def test_an_object_whose_owner_lives_stays():
    assert graph(obj("owner"), obj("a", "owner")).judge("a", set()) is None


def test_the_end_of_an_owner_makes_its_dependents_worth_a_look_and_nothing_else():
    g = graph(obj("owner"), obj("a", "owner"), obj("b", "owner"), obj("c", "other"), obj("other"))

    assert g.remove("owner") == {"a", "b"}
    assert g.judge("a", {"owner"}) == DeleteDependent("Background")


def test_an_owner_that_was_never_seen_is_verified_first():
    g = graph(obj("a", "ghost"))

    verdict = g.judge("a", set())
    assert isinstance(verdict, Verify)
    assert [owner.uid for owner in verdict.owners] == ["ghost"]
    assert g.judge("a", {"ghost"}) == DeleteDependent("Background")


def test_dangling_references_are_dropped_while_an_owner_lives():
    g = graph(obj("alive"), obj("a", "alive", "gone"))

    assert g.judge("a", {"gone"}) == KeepOwners(("alive",))


def test_an_owner_in_another_namespace_is_no_owner():
    g = graph(obj("owner", namespace="elsewhere"), obj("a", "owner"))

    assert g.judge("a", set()) == DeleteDependent("Background", has_foreign_owner=True)


def test_a_cluster_wide_owner_owns_in_every_namespace():
    g = OwnerGraph()
    g.put(Owned(NODES, "", "node", "node"))
    g.put(obj("a", "node"))

    assert g.judge("a", set()) is None


def test_foreground_deletion_waits_for_blocking_dependents_only():
    going = {"is_deleting": True, "finalizers": (FOREGROUND,)}
    blocking, other = obj("a", "owner", block=True), obj("b", "owner")
    g = graph(obj("owner"), blocking, other)

    assert g.put(obj("owner", **going)) == {"owner", "a", "b"}
    assert g.judge("owner", set()) is None
    assert g.judge("a", set()) == DeleteDependent("Background")

    assert g.remove("a") == {"owner"}
    assert g.judge("owner", set()) == Finish()


def test_foreground_deletion_goes_down_the_generations():
    g = graph(
        obj("owner", is_deleting=True, finalizers=(FOREGROUND,)), obj("a", "owner"), obj("grandchild", "a")
    )

    assert g.judge("a", set()) == DeleteDependent("Foreground")


def test_orphaning_releases_the_dependents():
    child = obj("a", "owner")
    g = graph(obj("owner", is_deleting=True, finalizers=(ORPHAN,)), child)

    assert g.judge("owner", set()) == Release((child,))


def test_an_object_on_its_way_out_is_left_to_its_finalizers():
    g = graph(obj("a", "gone", is_deleting=True, finalizers=("example.com/hold",)))

    assert g.judge("a", {"gone"}) is None


def test_nothing_is_left_in_the_indexes():
    g = graph(obj("owner"), obj("a", "owner"))
    g.put(obj("a"))
    assert g.dependents("owner") == []

    g.remove("a")
    g.remove("owner")
    assert g.in_namespace("team") == []
    assert (g._objects, g._dependents, g._by_namespace) == ({}, {}, {})


def test_a_state_that_was_seen_already_is_worth_no_look():
    g = graph(obj("a", "owner"))

    assert g.put(obj("a", "owner")) == set()
    assert g.put(Owned(CONFIG_MAPS, "team", "plain", "plain")) == set()
