"""Random clusters and gangs for the properties of placement, read from the bytes of one draw.

One draw of bytes costs half a millisecond, and hundreds of draws fifty times that, so that thousands of cases
take seconds. Where the bytes end, and where they are zero, every choice is the simplest, and so hypothesis
shrinks a scene by shrinking its bytes.
"""

import json
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

from gang_scenes import NOW, group, held, pod
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from gangline.clock import format_time
from gangline.placement.affinity.terms import Relations, Spread, Term
from gangline.placement.cycle import schedule
from gangline.placement.decisions import Decisions
from gangline.placement.gangs import Group
from gangline.placement.policy import Policy, Queue
from gangline.placement.snapshot import NodeView, PodView, Snapshot
from gangline.topology.annotation import NodeGpus, read_annotation
from gangline.topology.known import known_machine

CASES = int(os.environ.get("GANGLINE_PROPERTY_CASES", "100"))
"""``make test-properties`` sets more."""

IS_FIXED = "GANGLINE_PROPERTY_FIXED" in os.environ
"""Whether the cases are the same each time, as in CI: a rare one is found by the long runs, and mended there,
and refuses no change that has nothing to do with it."""

many = settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    **({"derandomize": True, "database": None} if IS_FIXED else {}),
)

GPU = "nvidia.com/gpu"
DISK = "example.com/disk"
HOST = "kubernetes.io/hostname"
LEVELS = ("block", "rack")
POLICY = Policy(
    levels=LEVELS,
    queues={"q": Queue(name="q", capability={GPU: 12}), "strict": Queue(name="strict", is_strict=True)},
    whole_for_s=0.0,
)

T = TypeVar("T")
Scene = tuple[Snapshot, list[PodView], dict[str, Group]]


class Draws:
    """Choices read from bytes, one each; zero and the end of the bytes choose the first."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def below(self, bound: int) -> int:
        return next(self._bytes, 0) % bound

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def rarely(self, one_in: int) -> bool:
        return self.below(one_in) == one_in - 1

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """Return up to ``most`` different options, none when zero."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(min(self.below(most + 1), len(left)))]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in options]


def drawn(make: Callable[[Draws], T], size: int = 320) -> st.SearchStrategy[T]:
    """Return the strategy of what is made from so many bytes."""
    return st.binary(min_size=size, max_size=size).map(lambda data: make(Draws(data)))


@lru_cache(maxsize=4096)
def _gpus(name: str, machine: str, unhealthy: tuple[int, ...]) -> NodeGpus:
    found = known_machine(machine)
    uuids = [f"{name}-{index}" for index in range(found.count)]
    return read_annotation(json.dumps(found.annotation(uuids, unhealthy=unhealthy)))


def node(draws: Draws, name: str) -> NodeView:
    """A node with GPUs by wires, by index or counted only, seldom without; some short of cpu, some closed."""
    machine = draws.one_of(["dgx1-v100", "dgx1-v100", "dgx1-v100", "p3.8xlarge", "h100-hgx", ""])
    gpus = _gpus(name, machine, tuple(sorted(draws.some(range(4), 2)))) if machine else None
    is_counted_only = draws.rarely(6)
    rack = draws.one_of(["A1", "A2", "B1"])
    allocatable = {"cpu": draws.one_of([80_000, 80_000, 7000]), "pods": draws.one_of([110, 110, 5])}
    if gpus is not None:
        allocatable[GPU] = gpus.machine.count
    if draws.rarely(3):
        allocatable[DISK] = 2
    return NodeView(
        name=name,
        labels={HOST: name} | ({"block": rack[0], "rack": rack} if not draws.rarely(12) else {}),
        allocatable=allocatable,
        gpus=None if is_counted_only else gpus,
        by_wires=not draws.rarely(3),
        unschedulable=draws.rarely(12),
    )


def nodes(draws: Draws, most: int = 5) -> list[NodeView]:
    return [node(draws, name) for name in "abcdefgh"[: 1 + draws.below(most)]]


def idle(draws: Draws) -> list[NodeView]:
    return nodes(draws, 6)


def bound(draws: Draws, on: list[NodeView]) -> list[PodView]:
    """Pods that run: of gangs and of none, with ids and, where the plugin chose, without."""
    found = []
    for where in on:
        free = list(range(where.allocatable.get(GPU, 0)))
        knows_ids = where.gpus is not None and not draws.rarely(5)
        for index in range(draws.below(5)):
            taken = [free.pop(draws.below(len(free))) for _ in range(min(1 + draws.below(4), len(free)))]
            if not taken:
                break
            gang = draws.one_of(["", "r1", "r2", "r3"])
            more: dict[str, Any] = {
                "priority": draws.below(4),
                "started": format_time(NOW - timedelta(minutes=draws.below(90))),
                "limit_s": draws.one_of([None, 3600, 7200]),
                "gang": gang,
                "host_ports": frozenset({("TCP", 80)}) if index == 0 and draws.rarely(4) else frozenset(),
                "labels": {"app": draws.one_of(["", "x", "y"])},
            }
            if draws.rarely(10):
                more["relations"] = Relations(apart=(about("rack", app="y"),))
            name = f"held-{where.name}-{index}"
            if knows_ids:
                found.append(held(name, where.name, *taken, **more))
            else:
                found.append(pod(name, len(taken), node_name=where.name, **more))
    return found


def gangs(draws: Draws, most: int = 5, *, plain: bool = False) -> tuple[list[PodView], dict[str, Group]]:
    """Gangs of workers, some with a launcher or parameter servers, and a few single pods."""
    waiting: list[PodView] = []
    groups: dict[str, Group] = {}
    for index in range(1 + draws.below(most)):
        name = f"g{index}"
        members = gang_pods(draws, name)
        waiting += members
        found = group(
            name,
            len(members) if plain else 1 + draws.below(len(members) + 1),
            priority=draws.below(4),
            queue="" if plain else draws.one_of(["", "q", "strict"]),
            required_level=draws.one_of(["", "", "rack"]),
            limit_s=draws.one_of([None, 600.0, 1e5]),
            created=format_time(NOW - timedelta(minutes=draws.below(60))),
        )
        groups[found.key] = found
    waiting += [pod(f"single-{index}", draws.below(3)) for index in range(draws.below(4))]
    return waiting, groups


def gang_pods(draws: Draws, name: str, *, may_spread: bool = True) -> list[PodView]:
    """The pods of one gang, of one to three shapes."""
    size, gpus = 1 + draws.below(10), draws.one_of([1, 1, 2, 4, 8, 0])
    cpu = draws.one_of([1000, 1000, 3000])
    more: dict[str, Any] = {"gang": name, "replica_type": "worker"}
    if draws.rarely(6):
        more["host_ports"] = frozenset({("TCP", 80)})
    if draws.rarely(8):
        more["node_selector"] = {"rack": "A1"}
    more["labels"] = {"app": draws.one_of(["", "x", "y"]), "job": name}
    if draws.rarely(3):
        more["relations"] = relations(draws, name, may_spread=may_spread)
    worker: dict[str, int] = {"cpu": cpu}
    if draws.rarely(8):
        worker[DISK] = 1
    found = [pod(f"{name}-worker-{rank}", gpus, request=worker, **more) for rank in range(size)]
    if draws.rarely(3):
        found.append(pod(f"{name}-launcher", 0, gang=name, replica_type="launcher"))
    if draws.rarely(5):
        servers = range(1 + draws.below(3))
        found += [pod(f"{name}-ps-{i}", 0, gang=name, request={"cpu": 5000}) for i in servers]
    return found


def about(key: str, **labels: str) -> Term:
    return Term(key, ("team",), tuple(sorted(labels.items())))


def relations(draws: Draws, name: str, *, may_spread: bool) -> Relations:
    """A rule about neighbours, of the gang's own pods or of others."""
    key = draws.one_of(["rack", HOST])
    own = about(key, job=name) if not draws.rarely(3) else about(key, app="x")
    kind = draws.below(4)
    return Relations(
        near=(own,) if kind == 0 else (),
        apart=(own,) if kind in (1, 3) else (),
        even=(Spread(own, 1 + draws.below(2)),) if kind == 2 and may_spread else (),
    )


def scene(draws: Draws) -> Scene:
    on = nodes(draws)
    running = bound(draws, on)
    waiting, groups = gangs(draws)
    return Snapshot(nodes=tuple(on), pods=tuple(running)), waiting, groups


scenes = drawn(scene)


def run(snapshot: Snapshot, waiting: list[PodView], groups: dict[str, Group]) -> Decisions:
    return schedule(snapshot, waiting, now=NOW, policy=POLICY, groups=groups)


def as_bound(waiting: list[PodView], decisions: Decisions) -> list[PodView]:
    """Return the pods that were placed, as they are once they run."""
    by_key = {found.key: found for found in waiting}
    return [
        by_key[b.pod].placed(b.node, tuple(u for _, found in b.gpus for u in found), format_time(NOW))
        for b in decisions.bindings
    ]


def gang_of(found: PodView) -> str:
    return found.gang or found.key
