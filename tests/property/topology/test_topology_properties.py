"""Statements about GPU choices that hold for every free set, and about rings for every machine."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.topology.gpu_choices import choices
from gangline.topology.known import known_machine
from gangline.topology.link_resources import mask_of, members
from gangline.topology.links import SELF
from gangline.topology.machine import Machine, machine_from_matrix
from gangline.topology.rates import PCIE_GB_S
from gangline.topology.rings import best_chain, best_rings, bus_gb_s, worth_gb_s


@pytest.mark.parametrize("name", ["v100-dgx1", "p100-dgx1", "t4-x8", "h100-hgx"])
def test_the_choice_is_the_optimum_for_every_free_set_and_size(name: str) -> None:
    machine = known_machine(name)
    table = choices(machine)
    rates = [worth_gb_s(machine, mask) for mask in range(1 << machine.count)]
    for free in range(1 << machine.count):
        gpus = members(free)
        for count in range(1, machine.count + 1):
            found = table.best(free, count)
            optimum = max((rates[mask_of(s)] for s in combinations(gpus, count)), default=None)
            if optimum is None:
                assert found == 0
                continue
            assert found & ~free == 0
            assert found.bit_count() == count
            assert rates[found] >= optimum * (1 - 1e-9)


def test_among_equals_the_choice_leaves_the_most() -> None:
    machine = known_machine("v100-dgx1")
    table = choices(machine)
    for free, count in product(range(256), (1, 2, 4)):
        found = table.best(free, count)
        if not found:
            continue
        numa = {machine.numa[gpu] for gpu in members(found)}
        for gpus in combinations(members(free), count):
            other = mask_of(gpus)
            same_rate = worth_gb_s(machine, other) == pytest.approx(worth_gb_s(machine, found), rel=1e-9)
            if same_rate and len({machine.numa[gpu] for gpu in gpus}) == len(numa):
                assert table.left(free & ~found) >= table.left(free & ~other)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    count = draw(st.integers(2, 5))
    names = st.sampled_from(["NV1", "NV2", "NV3", "PIX", "NODE", "SYS"])
    upper = {pair: draw(names) for pair in combinations(range(count), 2)}
    links = tuple(
        tuple(SELF if a == b else upper[min(a, b), max(a, b)] for b in range(count)) for a in range(count)
    )
    return machine_from_matrix("Tesla V100-SXM2-16GB", links)


def one_way_gb_s(machine: Machine, order: tuple[int, ...], *, closed: bool) -> float:
    """Return what one way of a ring or chain carries, counted anew from the description of the model."""
    pairs = [*pairwise(order)] + ([(order[-1], order[0])] if closed else [])
    loads: dict[tuple[object, ...], float] = {}
    rates: dict[tuple[object, ...], float] = {}

    def use(key: tuple[object, ...], rate: float, load: float) -> None:
        rates[key] = rate
        loads[key] = loads.get(key, 0) + load

    for a, b in pairs:
        if machine.widths[a][b]:
            use(("nvlink", min(a, b), max(a, b)), machine.widths[a][b] * machine.gpu.nvlink_gb_s, 1)
            continue
        far = machine.switches[a] != machine.switches[b]
        load = machine.host.p2p_overhead if far else 1.0
        for gpu in (a, b):
            use(("slot", gpu), PCIE_GB_S[machine.gpu.pcie], load)
            if far:
                use(("switch", machine.switches[gpu]), PCIE_GB_S[machine.gpu.pcie], load)
        if machine.numa[a] != machine.numa[b]:
            use(("numa", frozenset((machine.numa[a], machine.numa[b]))), machine.host.socket_gb_s, load)
    return min(rates[key] / load for key, load in loads.items())


@given(machines())
def test_no_order_of_the_gpus_is_faster_than_the_ring_and_the_chain_found(machine: Machine) -> None:
    if machine.nvswitch_links or machine.count < 3:
        return
    orders = list(permutations(range(machine.count)))
    rings = best_rings(machine, machine.everything)
    best_single = max(2 * one_way_gb_s(machine, order, closed=True) for order in orders)
    best_open = max(one_way_gb_s(machine, order, closed=False) for order in orders)

    assert best_chain(machine, machine.everything).gb_s == pytest.approx(best_open)
    assert rings.gb_s >= best_single * (1 - 1e-9)
    if not rings.nvlink:
        assert rings.gb_s == pytest.approx(best_single)


@given(machines(), st.data())
def test_numbering_does_not_matter(machine: Machine, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(machine.count)))
    other = machine.subset(order)

    assert bus_gb_s(other, other.everything) == pytest.approx(bus_gb_s(machine, machine.everything))


@given(machines())
def test_wider_links_never_slow_a_set(machine: Machine) -> None:
    wider = machine_from_matrix(
        machine.model,
        tuple(tuple("NV3" if name.startswith("NV") else name for name in row) for row in machine.links),
        numa=machine.numa,
        switches=machine.switches,
    )

    if wider.nvswitch_links:  # a mesh of so many links cannot be
        return

    assert bus_gb_s(wider, wider.everything) >= bus_gb_s(machine, machine.everything) * (1 - 1e-9)
