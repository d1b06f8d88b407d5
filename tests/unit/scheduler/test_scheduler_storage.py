"""Claims are told the node of their first pod before anything of its gang is bound."""

from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.kube.errors import Forbidden
from gangline.placement.decisions import Binding
from gangline.placement.volumes import Claim, StorageClass
from gangline.scheduler.state import SchedulerState
from gangline.scheduler.storage_watch import SELECTED_NODE, StorageWatch

VOLUMES = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


class Writes:
    """A client that keeps what is patched."""

    def __init__(self, error: Exception | None = None) -> None:
        self.patched: list[tuple[str, str, Any]] = []
        self.error = error

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, *, kind: str) -> None:
        if self.error is not None:
            raise self.error
        self.patched.append((resource.plural, f"{namespace}/{name}", patch["metadata"]["annotations"]))


def assumed(**claims: Claim) -> tuple[SchedulerState, list[Binding]]:
    state = SchedulerState(("gangline-scheduler",))
    state.storage.is_known = True
    state.storage.claims.update({f"team/{name}": claim for name, claim in claims.items()})
    state.storage.classes["lazy"] = StorageClass(waits=True, provisioner="x")
    state.storage.volumes["pv"] = None
    meta = {"name": "one", "namespace": "team", "uid": "one"}
    spec = {"schedulerName": "gangline-scheduler", "volumes": VOLUMES}
    state.take_pod(None, msgspec.convert({"metadata": meta, "spec": spec}, Pod))
    binding = Binding("team/one", "one", "a")
    state.assume(binding)
    return state, [binding]


async def test_a_claim_that_waits_for_its_first_pod_is_told_its_node():
    state, bindings = assumed(data=Claim(storage_class="lazy"))
    client = Writes()

    assert await StorageWatch(client, state, lambda: None).select(bindings) == []
    assert client.patched == [("persistentvolumeclaims", "team/data", {SELECTED_NODE: "a"})]


async def test_a_bound_claim_is_left_alone():
    state, bindings = assumed(data=Claim(volume="pv"))
    client = Writes()

    assert await StorageWatch(client, state, lambda: None).select(bindings) == []
    assert client.patched == []


async def test_where_a_claim_cannot_be_told_nothing_of_the_gang_is_bound():
    state, bindings = assumed(data=Claim(storage_class="lazy"))
    error = Forbidden(403, "Forbidden", "no")

    failed = await StorageWatch(Writes(error), state, lambda: None).select(bindings)

    assert failed == [(bindings[0], error)]
