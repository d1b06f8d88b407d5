"""Claims are told the node of their first pod before anything of its gang is bound."""

import msgspec
from fake_client import FakeClient

from gangline.api.core import Pod
from gangline.api.resources import PERSISTENT_VOLUME_CLAIMS
from gangline.kube.errors import Forbidden
from gangline.placement.claims.volumes import Claim, StorageClass
from gangline.placement.decisions import Binding
from gangline.scheduler.state import SchedulerState
from gangline.scheduler.storage_watch import SELECTED_NODE, StorageWatch

PERSISTENT_VOLUMES = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


async def client_with_claim() -> FakeClient:
    client = FakeClient()
    await client.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data", "namespace": "team"}})
    return client


def assumed(**claims: Claim) -> tuple[SchedulerState, list[Binding]]:
    state = SchedulerState(("gangline-scheduler",))
    state.storage.is_known = True
    state.storage.claims.update({f"team/{name}": claim for name, claim in claims.items()})
    state.storage.classes["lazy"] = StorageClass(waits=True, provisioner="x")
    state.storage.volumes["pv"] = None
    meta = {"name": "one", "namespace": "team", "uid": "one"}
    spec = {"schedulerName": "gangline-scheduler", "volumes": PERSISTENT_VOLUMES}
    state.take_pod(None, msgspec.convert({"metadata": meta, "spec": spec}, Pod))
    binding = Binding("team/one", "one", "a")
    state.assume(binding)
    return state, [binding]


async def test_a_claim_that_waits_for_its_first_pod_is_told_its_node():
    state, bindings = assumed(data=Claim(storage_class="lazy"))
    client = await client_with_claim()

    assert await StorageWatch(client, state, lambda: None).select(bindings) == []
    claim = await client.get(PERSISTENT_VOLUME_CLAIMS, "data", "team")
    assert claim["metadata"]["annotations"] == {SELECTED_NODE: "a"}


async def test_a_bound_claim_is_left_alone():
    state, bindings = assumed(data=Claim(volume="pv"))
    client = FakeClient()

    assert await StorageWatch(client, state, lambda: None).select(bindings) == []
    assert client.actions == []


async def test_where_a_claim_cannot_be_told_nothing_of_the_gang_is_bound():
    state, bindings = assumed(data=Claim(storage_class="lazy"))
    error = Forbidden(403, "Forbidden", "no")

    failed = await StorageWatch(FakeClient("default", error), state, lambda: None).select(bindings)

    assert failed == [(bindings[0], error)]
