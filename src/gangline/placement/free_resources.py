"""What nodes have left: amounts, GPUs, ports, devices of claims. Changed while gangs are tried.

It is copied for a trial (0.1 ms for 10,000 nodes) and thrown away, or kept. Shapes: N nodes, R resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gangline.placement.claims.devices import DeviceId

Ints = npt.NDArray[np.int64]

CHANGES_MAX = 1 << 16
"""Changes of rows that are remembered; beyond, what is derived from rows is worked out anew."""
SHAPES_MAX = 256
"""Shapes of pods whose permitted nodes are remembered; the oldest is forgotten first."""


class _Everybody(frozenset[str]):
    def __contains__(self, uid: object) -> bool:
        return True


EVERYBODY: frozenset[str] = _Everybody()
"""Of every pod it is said to be gone."""


class _AllDevices(frozenset["DeviceId"]):
    def __contains__(self, device: object) -> bool:
        return True


ALL_DEVICES: frozenset[DeviceId] = _AllDevices()
"""Every device is said to be returned."""


class _Derived:
    """An array over all nodes, and up to which change of the room it is true."""

    __slots__ = ("array", "seen")

    def __init__(self, array: npt.NDArray[np.generic], seen: int) -> None:
        self.array, self.seen = array, seen


class FreeResources:
    """What nodes have left.

    Attributes:
        free: amounts, int64 (N, R); negative where another scheduler has put too much on a node.
        gpus: free healthy GPUs whose ids we hand out, as masks, (N,).
        ports: (protocol, port) pairs in use, by row.
        taken: devices that claims of pods hold, by row.
        returned: devices that the claims of a cluster hold no more in a trial.
        gone: pods that are no neighbours any more in a trial, by uid.
    """

    __slots__ = ("_changed", "_derived", "free", "gone", "gpus", "ports", "returned", "taken")

    def __init__(self, free: Ints, gpus: Ints) -> None:
        self.free = free
        self.gpus = gpus
        self.ports: dict[int, frozenset[tuple[str, int]]] = {}
        self.taken: dict[int, frozenset[DeviceId]] = {}
        self.returned: frozenset[DeviceId] = frozenset()
        self.gone: frozenset[str] = frozenset()
        self._derived: dict[object, _Derived] = {}
        self._changed: list[int] = []

    def copy(self) -> FreeResources:
        """Return room of its own for a trial."""
        other = FreeResources(self.free.copy(), self.gpus.copy())
        other.ports = dict(self.ports)
        other.taken = dict(self.taken)
        other.returned = self.returned
        other.gone = self.gone
        return other

    def derived(
        self, key: object, compute: Callable[[Ints], npt.NDArray[np.generic]]
    ) -> npt.NDArray[np.generic]:
        """Return an array over all nodes; of the rows that have changed since, it is brought up to date now.

        Args:
            key: name of the array.
            compute: rows -> values of these rows.

        Cost: what was taken since this was asked last; arrays that nobody asks for cost nothing.
        """
        found = self._derived.get(key)
        if found is None:
            if len(self._derived) >= SHAPES_MAX:
                self._derived.clear()
            found = self._derived[key] = _Derived(compute(np.arange(len(self.gpus))), len(self._changed))
        elif found.seen < len(self._changed):
            rows = np.array(sorted(set(self._changed[found.seen :])))
            found.array[rows] = compute(rows)
            found.seen = len(self._changed)
        return found.array

    def take(
        self,
        index: int,
        amounts: Iterable[tuple[int, int]],
        gpus: int = 0,
        ports: frozenset[tuple[str, int]] = frozenset(),
        devices: frozenset[DeviceId] = frozenset(),
    ) -> None:
        """Take amounts, GPUs, ports and devices of one node; :meth:`renew` it afterwards."""
        row = self.free[index]
        for column, amount in amounts:
            row[column] -= amount
        if gpus:
            self.gpus[index] &= ~gpus
        if ports:
            self.ports[index] = self.ports.get(index, frozenset()) | ports
        if devices:
            self.taken[index] = self.taken.get(index, frozenset()) | devices

    def give_back(self, index: int, devices: frozenset[DeviceId]) -> None:
        """Give devices back, in a room of trial."""
        self.taken[index] = self.taken.get(index, frozenset()) - devices
        self.returned |= devices

    def take_again(self, index: int, devices: frozenset[DeviceId]) -> None:
        """Take again what :meth:`give_back` gave back."""
        self.taken[index] = self.taken.get(index, frozenset()) | devices
        self.returned -= devices

    def holds(self, device: DeviceId, index: int | None) -> bool:
        """Return whether a claim of a pod holds a device, of the pods on one row or, for None, on any."""
        if index is not None:
            return device in self.taken.get(index, ())
        return any(device in taken for taken in self.taken.values())

    def renew(self, *indices: int) -> None:
        """Note that rows have changed, for the derived arrays."""
        if not self._derived:
            return
        self._changed += indices
        if len(self._changed) > CHANGES_MAX:
            self.forget_derived()

    def forget_derived(self) -> None:
        """Forget the arrays that are worked out from all rows."""
        self._derived.clear()
        self._changed.clear()

    def forget(self, index: int) -> None:
        """Forget what is kept beside the arrays of one row."""
        self.ports.pop(index, None)
        self.taken.pop(index, None)
        self.forget_derived()

    def widen(self, width: int) -> None:
        """Add columns of zeros; a copy for a trial lacks those of resources that came later."""
        missing = width - self.free.shape[1]
        if missing <= 0:
            return
        self.free = np.concatenate([self.free, np.zeros((len(self.free), missing), np.int64)], axis=1)
        self.forget_derived()

    def insert(self, index: int) -> None:
        """Add a row of zeros."""
        self.free = np.insert(self.free, index, 0, axis=0)
        self.gpus = np.insert(self.gpus, index, 0)
        self.ports = {row + (row >= index): ports for row, ports in self.ports.items()}
        self.taken = {row + (row >= index): taken for row, taken in self.taken.items()}
        self.forget_derived()

    def delete(self, index: int) -> None:
        """Remove a row."""
        self.free = np.delete(self.free, index, axis=0)
        self.gpus = np.delete(self.gpus, index)
        self.ports = {row - (row > index): ports for row, ports in self.ports.items() if row != index}
        self.taken = {row - (row > index): taken for row, taken in self.taken.items() if row != index}
        self.forget_derived()
