"""Whatever a node says about its GPUs is read or refused with a reason; what was written comes back."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import UserError
from gangline.topology.annotation import read_annotation
from gangline.topology.known import known_machine, known_names
from gangline.topology.links import SELF
from gangline.topology.machine import machine_from_matrix
from gangline.topology.smi import read_smi

WORDS = ["GPU0", "GPU1", "GPU2", "NIC0", "X", "NV1", "NV12", "NV0", "PIX", "SYS", "SOC", "CPU", "Affinity"]
WORDS += ["NUMA", "0-3", "0", "N/A", "\n", "\n", "\t", "\x1b[4m", "Legend:"]


@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join) | st.text(max_size=200))
def test_any_print_is_read_or_refused(text: str) -> None:
    try:
        machine = read_smi(text, model="Tesla T4")
    except UserError as error:
        assert error.message
    else:
        assert machine.count >= 1


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 70)
    | st.text(max_size=5)
    | st.sampled_from(["X", "NV2", "PIX"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["uuid", "index", "numa", "healthy"]), inner),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["model", "source", "gpus", "links"]), json_values).map(json.dumps)
    | st.text()
)
def test_any_annotation_is_read_or_refused(text: str) -> None:
    try:
        found = read_annotation(text, node="n")
    except UserError as error:
        assert "node `n`" in error.message
    else:
        assert len(found.uuids) == found.machine.count


@pytest.mark.parametrize("name", known_names())
@given(data=st.data())
def test_a_known_machine_comes_back_with_its_health(name: str, data: st.DataObject) -> None:
    machine = known_machine(name)
    sick = data.draw(st.sets(st.integers(0, machine.count - 1)))
    uuids = [f"GPU-{index}" for index in range(machine.count)]
    found = read_annotation(json.dumps(machine.annotation(uuids, unhealthy=sick)))

    assert found.machine == machine
    assert found.healthy == machine.everything & ~sum(1 << index for index in sick)


def as_print(links: tuple[tuple[str, ...], ...], numa: tuple[int, ...]) -> str:
    heads = [f"GPU{index}" for index in range(len(links))]
    lines = ["\t".join(["", *heads, "CPU Affinity", "NUMA Affinity"])]
    lines += [
        "\t".join([head, *(f" {name} " for name in row), "0-3", str(node)])
        for head, row, node in zip(heads, links, numa, strict=True)
    ]
    return "\n".join([*lines, "", "Legend:", "  X = Self"])


@given(st.integers(1, 6), st.data())
def test_a_print_of_any_matrix_is_that_matrix(count: int, data: st.DataObject) -> None:
    names = st.sampled_from(["NV1", "NV2", "NV12", "PIX", "PXB", "PHB", "NODE", "SYS"])
    upper = {pair: data.draw(names) for pair in combinations(range(count), 2)}
    links = tuple(
        tuple(SELF if a == b else upper[min(a, b), max(a, b)] for b in range(count)) for a in range(count)
    )
    numa = tuple(data.draw(st.integers(0, 3)) for _ in range(count))
    machine = read_smi(as_print(links, numa), model="Tesla V100-SXM2-16GB")

    assert machine == machine_from_matrix("Tesla V100-SXM2-16GB", links, numa=numa)
