"""Placement of several gangs on a small cluster by an exact solver, to hold beside our own.

All sets of GPUs that a gang could get are listed, with the speed that the model predicts for each; a solver
(CP-SAT of OR-tools) chooses at most one set for each gang so that no GPU is used twice. Three questions: the
most GPUs that can be placed at all; the most where earlier gangs go first, as in a queue; and for exactly the
gangs that our pass placed, the highest speed.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from gang_scenes import NOW, dgx, group, held, members, pod
from msgspec import structs
from ortools.sat.python import cp_model

from gangline.placement.cycle import schedule
from gangline.placement.gangs import Gang, Group
from gangline.placement.node_table import NodeTable
from gangline.placement.place import place
from gangline.placement.policy import Policy
from gangline.placement.prediction import Workload, masks_of, outlook
from gangline.placement.snapshot import NodeView, PodView, Snapshot
from gangline.topology.link_resources import mask_of
from gangline.topology.network import NETWORK_LABEL
from gangline.workloads.requests import add_amounts

AT_ONCE = Policy(whole_for_s=0.0)
SCALE = 10_000
"""The solver counts in whole numbers: speeds in steps of 1/10,000."""

FREE_MAX = 12
"""Free GPUs of a cluster: with six more there would be a hundred times as many sets."""


@dataclass(frozen=True)
class Small:
    """A small cluster and what waits for it."""

    snapshot: Snapshot
    gangs: list[tuple[str, int, int]]

    @property
    def waiting(self) -> list[PodView]:
        return [pod for name, count, each in self.gangs for pod in members(name, count, each)]

    @property
    def groups(self) -> dict[str, Group]:
        return {f"team/{name}": group(name, count) for name, count, _ in self.gangs}


@dataclass(frozen=True)
class Gap:
    """What our pass reached beside the exact solver.

    Attributes:
        gangs: that wait. placed: by us.
        pods: placed by us. exact_pods: where most GPUs are placed.
        gpus: placed by us. ordered_gpus: where earlier gangs go first. exact_gpus: most.
        speed: of what we placed, the mean over GPUs, as a share of what each gang reaches at best.
        exact_speed: the highest for the same gangs.
    """

    gangs: int
    placed: int
    pods: int
    exact_pods: int
    gpus: int
    ordered_gpus: int
    exact_gpus: int
    speed: float
    exact_speed: float


def small_cluster(seed: int, *, gangs: int = 0) -> Small:
    """Return a cluster of up to three DGX-1 with V100, some GPUs taken, and one to four gangs.

    Args:
        seed: decides all.
        gangs: how many; 0 for any number.
    """
    rng = random.Random(seed)
    nodes: list[NodeView] = []
    bound: list[PodView] = []
    left = FREE_MAX
    for name in "abc"[: rng.randint(1, 3)]:
        nodes.append(dgx(name, **{NETWORK_LABEL: "25"}))
        free = min(rng.randint(2, 8), left)
        left -= free
        taken = sorted(rng.sample(range(8), 8 - free))
        bound.append(held(f"held-{name}", name, *taken, gang=f"held-{name}"))
    total = FREE_MAX - left
    asked = []
    for index in range(gangs or rng.randint(1, 4)):
        each = rng.choice([1, 1, 1, 2, 2, 4])
        asked.append((f"g{index}", rng.randint(1, max(min(8, total) // each, 1)), each))
    return Small(Snapshot(nodes=tuple(nodes), pods=tuple(bound)), asked)


def gap(small: Small) -> Gap:
    """Return how far our pass is from the exact solver."""
    table = NodeTable.of(small.snapshot.nodes, small.snapshot.pods)
    workload = Workload()
    sets: dict[str, list[tuple[tuple[int, ...], float]]] = {}
    for name, count, each in small.gangs:
        gang = Gang(name, members(name, count, each))
        spots = place(table, table.idle(), gang)
        best = outlook(table, masks_of(spots), workload) if spots else None
        found = []
        for masks in _sets(table, count * each, each):
            predicted = outlook(table, dict(enumerate(masks)), workload)
            assert predicted is not None
            found.append((masks, predicted.step_s))
        fastest = min([step for _, step in found] + ([best.step_s] if best else []), default=1.0)
        sets[name] = [(masks, fastest / step) for masks, step in found]

    ours: dict[str, dict[int, int]] = {}
    by_key = {pod.key: pod.gang.removeprefix("team/") for pod in small.waiting}
    decided = schedule(small.snapshot, small.waiting, now=NOW, policy=AT_ONCE, groups=small.groups)
    for binding in decided.bindings:
        masks = ours.setdefault(by_key[binding.pod], {})
        row = table.index(binding.node)
        masks[row] = masks.get(row, 0) | mask_of(binding.indices)
    sizes = {name: count * each for name, count, each in small.gangs}
    pods = {name: count for name, count, _ in small.gangs}
    speeds = {name: dict(found) for name, found in sets.items()}
    reached = sum(
        sizes[name] * speeds[name][tuple(masks.get(row, 0) for row in range(len(table)))]
        for name, masks in ours.items()
    )
    placed = _solve(sets, sizes)
    ordered = _solve(sets, {name: 1 << -rank for rank, name in enumerate(sorted(sets), -len(sets))})
    fast = _solve({name: sets[name] for name in ours}, sizes, is_fast=True)
    gpus = sum(sizes[name] for name in ours)
    best_speed = sum(sizes[name] * speeds[name][masks] for name, masks in fast.items())
    return Gap(
        gangs=len(small.gangs),
        placed=len(ours),
        pods=sum(pods[name] for name in ours),
        exact_pods=sum(pods[name] for name in placed),
        gpus=gpus,
        ordered_gpus=sum(sizes[name] for name in ordered),
        exact_gpus=sum(sizes[name] for name in placed),
        speed=reached / gpus if gpus else 1.0,
        exact_speed=best_speed / gpus if gpus else 1.0,
    )


def _sets(table: NodeTable, wanted: int, each: int) -> Iterator[tuple[int, ...]]:
    """Yield every choice of free GPUs, as masks by node, that pods of ``each`` GPUs fill."""
    by_node = []
    for free in table.room.gpus:
        indices = [index for index in range(8) if int(free) >> index & 1]
        counts = range(0, min(len(indices), wanted) + 1, each)
        by_node.append([mask_of(found) for count in counts for found in combinations(indices, count)])
    for masks in product(*by_node):
        if sum(mask.bit_count() for mask in masks) == wanted:
            yield masks


def _solve(
    sets: dict[str, list[tuple[tuple[int, ...], float]]], worth: dict[str, int], *, is_fast: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return the set of each gang that is placed: those worth most, or all of them as fast as can be."""
    model = cp_model.CpModel()
    chosen = {
        name: [(model.new_bool_var(""), masks, speed) for masks, speed in found]
        for name, found in sets.items()
    }
    users: dict[tuple[int, int], list[cp_model.IntVar]] = {}
    for found in chosen.values():
        literals = [literal for literal, _, _ in found]
        if is_fast:
            model.add_exactly_one(literals)
        elif literals:
            model.add_at_most_one(literals)
        for literal, masks, _ in found:
            for row, mask in enumerate(masks):
                for index in range(8):
                    if mask >> index & 1:
                        users.setdefault((row, index), []).append(literal)
    for literals in users.values():
        model.add_at_most_one(literals)
    model.maximize(
        sum(
            literal * worth[name] * (round(speed * SCALE) if is_fast else 1)
            for name, found in chosen.items()
            for literal, _, speed in found
        )
    )
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    assert status == cp_model.OPTIMAL, solver.status_name(status)
    return {
        name: masks
        for name, found in chosen.items()
        for literal, masks, _ in found
        if solver.boolean_value(literal)
    }


MixedCluster = tuple[list[NodeView], list[PodView], list[PodView]]
"""Nodes, pods that run, and the pods of one gang of several shapes."""


def mixed_cluster(below: Callable[[int], int]) -> MixedCluster:
    """Return up to four small nodes and a gang of workers, parameter servers and a launcher.

    Args:
        below: returns a number that is less than its argument.
    """
    nodes: list[NodeView] = []
    bound: list[PodView] = []
    for name in "abcd"[: 1 + below(4)]:
        node = dgx(name, wires=bool(below(2)))
        cpu = 1000 * (2 + below(12))
        kind = below(4)
        if kind == 3:  # without GPUs
            node = NodeView(name=name, allocatable={"cpu": cpu, "pods": 110})
        else:
            gpus = node.gpus if kind else None  # counted only, or by id
            amounts = {**node.allocatable, "cpu": cpu}
            node = structs.replace(node, gpus=gpus, allocatable=amounts)
            taken = [index for index in range(8) if below(3) == 2]
            if taken:
                request = {"cpu": 100, "pods": 1, "nvidia.com/gpu": len(taken)}
                more = {"request": request, "gpu_uuids": tuple(f"{name}-{i}" for i in taken) if gpus else ()}
                bound.append(pod(f"held-{name}", len(taken), node_name=name, **more))
        nodes.append(node)
    each, cores = [1, 2, 4, 8][below(4)], 1000 * (1 + below(4))
    ports = frozenset({("TCP", 80)}) if below(5) == 4 else frozenset[tuple[str, int]]()
    pods = members("g", 1 + below(5), each, request={"cpu": cores})
    servers = 1 + below(4)
    pods += [
        pod(f"g-ps-{i}", below(2), gang="g", request={"cpu": 2000}, host_ports=ports) for i in range(servers)
    ]
    if below(2):
        pods.append(pod("g-launcher", 0, gang="g", request={"cpu": 1000 * (1 + below(6))}, host_ports=ports))
    return nodes, bound, pods


def fits_exactly(nodes: list[NodeView], bound: list[PodView], pods: list[PodView]) -> bool:
    """Return whether a solver finds a node for every pod: amounts and ports, no matter which GPUs."""
    model = cp_model.CpModel()
    alike: dict[tuple[str, bool], list[PodView]] = {}
    for found in pods:
        alike.setdefault((str(found.request), bool(found.host_ports)), []).append(found)
    on = {
        (key, node.name): model.new_int_var(0, len(found), "")
        for key, found in alike.items()
        for node in nodes
    }
    for key, found in alike.items():
        model.add(sum(on[key, node.name] for node in nodes) == len(found))
    for node in nodes:
        used = add_amounts([held.request for held in bound if held.node_name == node.name])
        for name in add_amounts([found.request for found in pods]):
            free = node.allocatable.get(name, 0) - used.get(name, 0)
            asked = [on[key, node.name] * found[0].request.get(name, 0) for key, found in alike.items()]
            model.add(sum(asked) <= max(free, 0))
        model.add(sum(on[key, node.name] for key in alike if key[1]) <= 1)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.cp_model_presolve = False  # which would take longer than the search
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE)
    return bool(status != cp_model.INFEASIBLE)


def mixed_fits(seed: int) -> tuple[bool, bool]:
    """Return whether we place the gang of a cluster of :func:`mixed_cluster`, and whether a solver does."""
    nodes, bound, pods = mixed_cluster(random.Random(seed).randrange)
    table = NodeTable.of(nodes, bound)
    return place(table, table.room, Gang("team/g", pods)) is not None, fits_exactly(nodes, bound, pods)
