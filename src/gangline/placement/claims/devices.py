"""What ResourceSlices say: devices in pools, and which pools a node may use. Pure.

A pool counts once all slices of its newest generation are there; of an older one nothing is used.
Source: Kubernetes, ``resource.k8s.io/v1``, ResourceSlice; pools, slices and devices come in the order of
kube-scheduler 1.37.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gangline.placement.filters import term_holds
from gangline.placement.snapshot import NodeView
from gangline.units import parse_quantity
from gangline.workloads.cel import Expression, NoValue, Version

Obj = dict[str, Any]

KEEPING_AWAY = ("NoSchedule", "NoExecute")
"""Effects of a device's taints that keep claims away which do not tolerate them."""

UNSERVED = ("consumesCounters", "allowMultipleAllocations", "bindingConditions")
"""Fields of devices that are beyond this scheduler: partitions, shares, conditions before a pod is bound."""


class DeviceId(NamedTuple):
    """What names a device in a cluster."""

    driver: str
    pool: str
    name: str


class Place(NamedTuple):
    """Where devices can be used: on one node, on all, or where a term of nodes holds."""

    node: str = ""
    everywhere: bool = False
    term: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, spec: Obj) -> Place:
        """Return what a slice, or a device that says so itself, tells."""
        terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or [None]
        return cls(spec.get("nodeName") or "", bool(spec.get("allNodes")), terms[0])

    def has(self, node: NodeView) -> bool:
        """Return whether a node is there."""
        if self.node or self.everywhere:
            return self.everywhere or self.node == node.name
        return self.term is not None and term_holds(dict(self.term), node)


class _Domains(dict[str, Obj]):
    """Attributes by domain, as CEL sees them: a domain that a device has nothing of is empty."""

    def __missing__(self, domain: str) -> Obj:
        return {}


@dataclass(eq=False, slots=True)
class Device:
    """One device.

    Attributes:
        id: its name.
        place: where it can be used.
        seen: as selectors see it.
        attributes: (type, value) by name with domain, as constraints compare them.
        taints: those that keep claims away.
        unserved: the field that is beyond this scheduler, or empty.
    """

    id: DeviceId
    place: Place
    seen: Obj
    attributes: dict[str, tuple[str, Any]]
    taints: tuple[Obj, ...]
    unserved: str
    _verdicts: dict[str, bool | NoValue] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """How a GPU of ours is called apart from claims."""
        return str(self.seen["attributes"][self.id.driver].get("uuid", self.id.name))

    def matches(self, selectors: Iterable[tuple[str, Expression]]) -> bool:
        """Return whether all of these (text, rule) hold. Remembered by their text; the first time 10 µs.

        Raises:
            NoValue: one has no value for the device.
        """
        for text, rule in selectors:
            if text not in self._verdicts:
                try:
                    self._verdicts[text] = rule({"device": self.seen}) is True
                except NoValue as error:
                    self._verdicts[text] = error
            verdict = self._verdicts[text]
            if isinstance(verdict, NoValue):
                raise verdict
            if not verdict:
                return False
        return True

    @classmethod
    def read(cls, driver: str, pool: str, place: Place, obj: Obj) -> Device:
        """Return a device of a slice."""
        seen: Obj = {
            "driver": driver,
            "allowMultipleAllocations": bool(obj.get("allowMultipleAllocations")),
            "attributes": _Domains(),
            "capacity": _Domains(),
        }
        attributes = {}
        # A name without a domain is the driver's; one with it wins, as it does for Kubernetes.
        for key, value in sorted((obj.get("attributes") or {}).items(), key=lambda entry: "/" in entry[0]):
            domain, _, name = key.rpartition("/")
            ((kind, said),) = value.items()
            attributes[f"{domain or driver}/{name}"] = kind, said
            seen["attributes"].setdefault(domain or driver, {})[name] = (
                Version.parse(said) if kind == "version" else said
            )
        for key, value in (obj.get("capacity") or {}).items():
            domain, _, name = key.rpartition("/")
            seen["capacity"].setdefault(domain or driver, {})[name] = parse_quantity(value["value"])
        taints = tuple(one for one in obj.get("taints") or () if one.get("effect") in KEEPING_AWAY)
        unserved = next((name for name in UNSERVED if obj.get(name)), "")
        return cls(DeviceId(driver, pool, obj["name"]), place, seen, attributes, taints, unserved)


@dataclass(eq=False, slots=True)
class Slice:
    """One ResourceSlice; ``place`` is where it can be used, None where each device says so itself."""

    name: str
    driver: str
    pool: str
    generation: int
    count: int
    place: Place | None
    devices: tuple[Device, ...]

    @classmethod
    def read(cls, obj: Obj) -> Slice:
        """Return what a slice says."""
        spec = obj["spec"]
        pool, driver = spec["pool"], spec["driver"]
        place = None if spec.get("perDeviceNodeSelection") else Place.read(spec)
        devices = tuple(
            Device.read(driver, pool["name"], place or Place.read(one), one)
            for one in spec.get("devices") or ()
        )
        generation, count = int(pool.get("generation") or 0), int(pool.get("resourceSliceCount") or 0)
        return cls(obj["metadata"]["name"], driver, pool["name"], generation, count, place, devices)

    def is_for(self, node: NodeView) -> bool:
        """Return whether a node may use a device of it."""
        if self.place is not None:
            return self.place.has(node)
        return any(device.place.has(node) for device in self.devices)


@dataclass(eq=False, slots=True)
class Pool:
    """What a node may use of a pool; with a ``flaw`` (``is being updated``) nothing at all."""

    driver: str
    name: str
    devices: tuple[Device, ...]
    flaw: str = ""


class DevicePools:
    """All ResourceSlices of a cluster."""

    def __init__(self) -> None:
        self._slices: dict[str, Slice] = {}
        self._by_pool: dict[tuple[str, str], dict[str, Slice]] = {}
        self._by_node: dict[str, dict[str, Slice]] = {}
        self._on_node: dict[str, tuple[dict[str, str], tuple[Pool, ...]]] = {}

    def __iter__(self) -> Iterator[Device]:
        return (device for one in self._slices.values() for device in one.devices)

    def __bool__(self) -> bool:
        return bool(self._slices)

    def take(self, obj: Obj, *, is_gone: bool = False) -> Collection[str] | None:
        """Take a slice, or that it is gone; return whose pools may have changed, None for every node's."""
        old = self._slices.pop(obj["metadata"]["name"], None)
        new = None if is_gone else Slice.read(obj)
        known = [one for one in (old, new) if one is not None]
        pools = {(one.driver, one.pool) for one in known}
        nodes = {self._only_node(one) for one in known}
        if old is not None:
            del self._by_pool[old.driver, old.pool][old.name]
            del self._by_node[self._only_node(old)][old.name]
        if new is not None:
            self._slices[new.name] = new
            self._by_pool.setdefault((new.driver, new.pool), {})[new.name] = new
            self._by_node.setdefault(self._only_node(new), {})[new.name] = new
        # Whether a pool is complete counts on all nodes that use it.
        nodes |= {self._only_node(one) for pool in pools for one in self._by_pool[pool].values()}
        if "" in nodes:
            self._on_node.clear()
            return None
        for name in nodes:
            self._on_node.pop(name, None)
        return nodes

    def slice_of(self, name: str) -> Slice | None:
        """Return the slice of a name."""
        return self._slices.get(name)

    @staticmethod
    def _only_node(one: Slice) -> str:
        return one.place.node if one.place is not None else ""

    def node_of(self, device: DeviceId) -> str:
        """Return the node that alone can use a pool's devices, empty where several can."""
        found = {self._only_node(one) for one in self._by_pool.get((device.driver, device.pool), {}).values()}
        return found.pop() if len(found) == 1 else ""

    def on_node(self, node: NodeView) -> tuple[Pool, ...]:
        """Return the pools that a node may use, by driver and name. The same ones until a slice changes."""
        if not self._slices:
            return ()
        known = self._on_node.get(node.name)
        if known is None or known[0] != node.labels:
            known = self._on_node[node.name] = node.labels, self._gather(node)
        return known[1]

    def _gather(self, node: NodeView) -> tuple[Pool, ...]:
        found: dict[tuple[str, str], list[Slice]] = {}
        for one in (*self._by_node.get(node.name, {}).values(), *self._by_node.get("", {}).values()):
            if one.is_for(node):
                found.setdefault((one.driver, one.pool), []).append(one)
        pools = (self._pool(key, found[key], node) for key in sorted(found))
        return tuple(pool for pool in pools if pool is not None)

    def _pool(self, key: tuple[str, str], here: Sequence[Slice], node: NodeView) -> Pool | None:
        """Return a pool by its slices that are for a node, None where these are of an old generation."""
        everywhere = self._by_pool[key].values()
        newest = max(one.generation for one in everywhere)
        current = sorted((one for one in here if one.generation == newest), key=lambda one: one.name)
        if not current:
            return None
        if sum(one.generation == newest for one in everywhere) != current[0].count:
            return Pool(*key, (), "is being updated")
        devices = tuple(device for one in current for device in one.devices)
        if len({device.id for device in devices}) < len(devices):
            return Pool(*key, (), "has two devices of one name")
        return Pool(*key, tuple(device for device in devices if device.place.has(node)))
