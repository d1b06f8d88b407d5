"""Pack pods of several shapes together, where packing one shape after another leaves no room for the last.

How many pods of each shape fit on one node at the same time is a *mix*. Going through the nodes one by one, a
table says for all numbers of pods of each shape on how few of the nodes so far they fit: that is exact. Work
is bounded: nodes that take the same mixes stand for one another, and of very many only the roomiest count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product

import numpy as np
import numpy.typing as npt

from gangline.placement.capacity import capacity
from gangline.placement.free_resources import FreeResources, Ints
from gangline.placement.node_table import NodeTable
from gangline.placement.snapshot import PodView
from gangline.workloads.requests import GPU

Mix = tuple[int, ...]
"""Pods of each shape on one node."""

Table = npt.NDArray[np.int32]

CELLS_MAX = 20_000
"""Gangs with more numbers of pods of their shapes than that, multiplied, are left to the simple way."""

WORK_MAX = 1_000_000
"""Cells of tables that are looked at for one set of nodes: 5 ms."""

ROWS_MAX = 1024
"""Nodes that are looked at, those with most room for each shape."""

MIXES_MAX = 256
CLASSES_MAX = 64
"""Mixes that are tried for a node, and kinds of nodes."""

NEVER = np.int32(1 << 30)


def mixes_on(
    table: NodeTable, room: FreeResources, shapes: Sequence[list[PodView]], rows: Ints
) -> list[tuple[int, Mix]] | None:
    """Return how many pods of each shape go to which row, so that all are placed, or None. Nothing is taken.

    Args:
        table: the nodes.
        room: what is left on them.
        shapes: pods of equal shape together.
        rows: nodes that may be used.

    Cost: some ten array operations where the room does not suffice in sum, else up to 10 ms.
    """
    wanted = tuple(len(pods) for pods in shapes)
    cells = int(np.prod([count + 1 for count in wanted]))
    if cells > CELLS_MAX:
        return None
    counts = np.stack([np.minimum(capacity(table, room, pods[0])[rows], len(pods)) for pods in shapes])
    useful = counts.any(axis=0)
    rows, counts = rows[useful], counts[:, useful]
    if (counts.sum(axis=1) < wanted).any():
        return None
    if len(rows) > ROWS_MAX:
        best = [np.lexsort((rows, -one))[: ROWS_MAX // len(counts)] for one in counts]
        roomiest = np.unique(np.concatenate(best))
        rows, counts = rows[roomiest], counts[:, roomiest]
    nodes = _Nodes(table, room, shapes, rows, counts)
    if not nodes.suffice():
        return None
    return _search(nodes, wanted, cells)


class _Nodes:
    """The nodes that may be used, and the mixes of each."""

    def __init__(
        self, table: NodeTable, room: FreeResources, shapes: Sequence[list[PodView]], rows: Ints, counts: Ints
    ) -> None:
        self.rows, self._counts = rows, counts
        self._wanted = np.array([len(pods) for pods in shapes], np.int64)
        pods = [found[0] for found in shapes]
        columns = sorted({column for pod in pods for column, _ in table.amounts(pod)})
        self._needs = np.zeros((len(pods), len(columns) + 1), np.int64)
        for place, pod in enumerate(pods):
            for column, amount in table.amounts(pod):
                self._needs[place, columns.index(column)] = amount
            self._needs[place, -1] = pod.request.get(GPU, 0)
        ids = np.bitwise_count(room.gpus[rows].astype(np.uint64)).astype(np.int64)
        total: Ints = self._wanted @ self._needs
        ids = np.where(table.kind_of[rows] >= 0, ids, total[-1])  # where others choose, numbers alone count
        free = room.free[rows[:, None], np.array(columns, np.int64)]
        self._free = np.clip(np.concatenate([free, ids[:, None]], axis=1), 0, total)
        self._total = total
        self._clashes = [
            (one, other)
            for one in range(len(pods))
            for other in range(one)
            if pods[one].host_ports & pods[other].host_ports
        ]

    def suffice(self) -> bool:
        """Return whether there is room for all in sum."""
        return bool((self._free.sum(axis=0) >= self._total).all())

    def classes(self) -> list[tuple[list[Mix], list[int]]]:
        """Return the mixes of nodes that are alike, and their positions; those with most room first."""
        alike = np.concatenate([self._free, self._counts.T], axis=1)
        _, first, number = np.unique(alike, axis=0, return_index=True, return_inverse=True)
        number = number.reshape(-1)
        share = (self._counts / self._wanted[:, None]).sum(axis=0)
        order = np.lexsort((first, -share[first]))[:CLASSES_MAX]
        most = int(self._wanted.sum())
        found = []
        for chosen in order:
            positions = np.flatnonzero(number == chosen)[:most]
            found.append((self._mixes(int(first[chosen])), [int(position) for position in positions]))
        return found

    def _mixes(self, position: int) -> list[Mix]:
        """Return the largest mixes that one node takes: of none more could be added."""
        counts, free = self._counts[:, position], self._free[position]
        last = int(np.argmax(counts))
        others = [shape for shape in range(len(counts)) if shape != last]
        numbers = product(*(range(int(counts[shape]), -1, -1) for shape in others))
        some = np.array(list(islice(numbers, MIXES_MAX)), np.int64)
        mixes = np.zeros((len(some), len(counts)), np.int64)
        mixes[:, others] = some
        left, needs = free - mixes @ self._needs, self._needs[last]
        room = left[:, needs > 0] // needs[needs > 0]
        mixes[:, last] = np.clip(room.min(axis=1, initial=counts[last]), 0, counts[last])
        fits = (left >= 0).all(axis=1)
        for one, other in self._clashes:
            keeper = other if one == last else one
            mixes[:, last] = np.where((last in (one, other)) & (mixes[:, keeper] > 0), 0, mixes[:, last])
            fits &= (mixes[:, one] == 0) | (mixes[:, other] == 0)
        mixes = np.unique(mixes[fits], axis=0)[::-1]
        covered = (mixes[:, None, :] <= mixes[None, :, :]).all(axis=2).sum(axis=1) > 1  # by more than itself
        return [tuple(int(count) for count in mix) for mix in mixes[~covered] if mix.any()]


def _search(nodes: _Nodes, wanted: Mix, cells: int) -> list[tuple[int, Mix]] | None:
    """Return a mix for each node that is used."""
    sizes = tuple(count + 1 for count in wanted)
    fewest = np.full(cells, NEVER, np.int32)  # by numbers of pods: on how few nodes at least so many fit
    fewest[0] = 0
    steps: list[tuple[int, list[Mix], Table]] = []
    sources: dict[Mix, Ints] = {}
    work = 0
    for position, mixes in _in_turn(nodes.classes()):
        work += cells * len(mixes)
        if work > WORK_MAX:
            return None
        steps.append((position, mixes, fewest))
        for mix in mixes:
            if mix not in sources:
                sources[mix] = _without(mix, sizes)
        fewest = np.minimum.reduce([fewest, *(steps[-1][2][sources[mix]] + np.int32(1) for mix in mixes)])
        if fewest[-1] < NEVER:
            break
    else:
        return None
    found: list[tuple[int, Mix]] = []
    cell = cells - 1
    for position, mixes, before in reversed(steps):
        if before[cell] <= fewest[cell]:
            fewest = before
            continue
        mix = next(mix for mix in mixes if before[sources[mix][cell]] + 1 == fewest[cell])
        left = np.unravel_index(cell, sizes)
        cell = int(sources[mix][cell])
        then = np.unravel_index(cell, sizes)
        found.append((int(nodes.rows[position]), tuple(int(a - b) for a, b in zip(left, then, strict=True))))
        fewest = before
    return found


def _in_turn(classes: list[tuple[list[Mix], list[int]]]) -> Iterator[tuple[int, list[Mix]]]:
    """Yield one node of each class, then the second of each, and so on."""
    longest = max((len(positions) for _, positions in classes), default=0)
    for turn in range(longest):
        for mixes, positions in classes:
            if turn < len(positions):
                yield positions[turn], mixes


def _without(mix: Mix, sizes: Mix) -> Ints:
    """Return, for every cell of a table, the cell of what is left to place when a node takes a mix."""
    axes = [np.maximum(np.arange(size) - count, 0) for size, count in zip(sizes, mix, strict=True)]
    return np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), sizes).reshape(-1)
