"""No GPU is handed out twice and none is lost, whatever order pods come, go, and agents restart in."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gangline.api.core import Container, PodSpec, ResourceRequirements
from gangline.devices.inventory import DeviceInventory
from gangline.devices.ledger import GpuChoiceError, GpuLedger, GpuRequest, GpusTakenError, Shares
from gangline.devices.simulated import simulate
from gangline.workloads.gpus import gpu_shares

SIZES = {"node-0": 4, "node-1": 3}
NODES = st.sampled_from(sorted(SIZES))


def inventories() -> dict[str, DeviceInventory]:
    return {name: simulate(name, count) for name, count in SIZES.items()}


def container(name: str, gpus: int) -> Container:
    return Container(name=name, resources=ResourceRequirements(limits={"nvidia.com/gpu": gpus}))


@dataclass
class Record:
    """What is on disk of a pod that runs: the text of ``pod.json``, of which an agent reads the GPUs."""

    node: str
    text: str

    @property
    def shares(self) -> Shares:
        return {name: tuple(ids) for name, ids in json.loads(self.text).items()}


class Machine(RuleBasedStateMachine):
    """Two nodes of one machine, pods that come and go, and an agent that is killed now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = GpuLedger(inventories())
        self.records: dict[str, Record] = {}
        self.count = 0

    def arrive(self, node: str, running: dict[str, int], starting: int, chosen: dict[str, list[str]]) -> None:
        self.count += 1
        uid = f"pod-{self.count}"
        containers = [container(name, count) for name, count in running.items()]
        shares = gpu_shares(PodSpec(init_containers=[container("init", starting)], containers=containers))
        request = GpuRequest(uid, node, shares, frozenset({"init"}), chosen)
        free = len(self.ledger.free(node))
        try:
            given = self.ledger.take(request)
        except (GpusTakenError, GpuChoiceError) as error:
            assert uid not in self.ledger.held().values()
            if isinstance(error, GpusTakenError) and not chosen:
                assert request.total > free, "refused although there was room"
            return
        for name, count in running.items():
            assert len(given.get(name, ())) == count
        assert len(given.get("init", ())) == starting
        if any(given.values()):
            self.records[uid] = Record(node, json.dumps(given))

    @rule(
        node=NODES,
        running=st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3),
        starting=st.integers(0, 4),
    )
    def pod_arrives(self, node: str, running: dict[str, int], starting: int) -> None:
        self.arrive(node, running, starting, {})

    @rule(node=NODES, indexes=st.lists(st.integers(0, 4), max_size=3), elsewhere=st.booleans())
    def pod_with_chosen_gpus_arrives(self, node: str, indexes: list[int], elsewhere: bool) -> None:
        place = "node-1" if elsewhere else node
        ids = [f"GPU-simulated-{place}-{index}" for index in indexes]
        self.arrive(node, {"a": len(ids), "b": 1}, 0, {"a": ids})

    @rule(data=st.data())
    def pod_ends(self, data: st.DataObject) -> None:
        if self.records:
            uid = data.draw(st.sampled_from(sorted(self.records)))
            held = {one for one, holder in self.ledger.held().items() if holder == uid}
            assert set(self.ledger.release(uid)) == held
            del self.records[uid]

    @rule(data=st.data())
    def agent_restarts(self, data: st.DataObject) -> None:
        """The next agent knows what is on disk, in whatever order it reads it; some pods ended meanwhile."""
        order = data.draw(st.permutations(sorted(self.records)))
        ended = set(data.draw(st.lists(st.sampled_from(order), unique=True))) if order else set()
        self.ledger = GpuLedger(inventories())
        for uid in order:
            if uid in ended:
                del self.records[uid]
            else:
                assert self.ledger.reserve(uid, self.records[uid].shares) == []

    @invariant()
    def none_is_handed_out_twice(self) -> None:
        holders: dict[str, str] = {}
        for uid, record in self.records.items():
            for ids in record.shares.values():
                for one in ids:
                    assert holders.setdefault(one, uid) == uid
        assert self.ledger.held() == holders

    @invariant()
    def none_is_lost(self) -> None:
        for node, count in SIZES.items():
            everything = {gpu.uuid for gpu in self.ledger.inventory(node).gpus}
            held = set(self.ledger.held()) & everything
            assert set(self.ledger.free(node)) == everything - held
            assert len(everything) == count


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMachine = Machine.TestCase
