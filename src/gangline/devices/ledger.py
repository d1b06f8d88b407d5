"""Which pod holds which GPU: none twice, none lost. Values and rules only, no input or output.

Ids come from the pod's annotation ``gangline.dev/gpus`` where it has one, else the lowest free index first,
as the stock device plugin does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gangline.api.core import Pod
from gangline.devices.inventory import ALIASES, RESOURCE, Inventory
from gangline.units import quantity_ceil

ANNOTATION = "gangline.dev/gpus"
"""Pod annotation: JSON object, container name -> list of ids. Written by whoever places the pod."""

Shares = dict[str, tuple[str, ...]]
"""Container name -> ids of its GPUs."""


class GpusTakenError(Exception):
    """There are not enough free GPUs, or not the chosen ones: it is tried again when some come free."""


class GpuChoiceError(Exception):
    """What the pod asks for can never be given as it is written."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What a pod asks for.

    Attributes:
        uid: of the pod.
        node: on which it runs.
        running: container (or sidecar) -> how many, for those that run together.
        starting: init container -> how many; they run before, on GPUs of the others where these suffice.
        chosen: container -> ids, from the annotation.
    """

    uid: str
    node: str
    running: Mapping[str, int]
    starting: Mapping[str, int]
    chosen: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, pod: Pod) -> GpuRequest:
        """Return the request of a pod.

        Raises:
            GpuChoiceError: the annotation or an amount cannot be read.
        """
        init = pod.spec.init_containers
        together = [*(c for c in init if c.restart_policy == "Always"), *pod.spec.containers]
        before = [container for container in init if container.restart_policy != "Always"]
        return cls(
            uid=pod.metadata.uid,
            node=pod.spec.node_name,
            running={container.name: _count(container.resources.limits) for container in together},
            starting={container.name: _count(container.resources.limits) for container in before},
            chosen=read_choice(pod.metadata.annotations.get(ANNOTATION, "")),
        )

    @property
    def total(self) -> int:
        """How many GPUs the pod needs at once."""
        return max(sum(self.running.values()), *self.starting.values(), 0)


def _count(limits: Mapping[str, str | int | float]) -> int:
    try:
        return sum(quantity_ceil(limits.get(name, 0)) for name in (RESOURCE, *ALIASES))
    except ValueError as error:
        raise GpuChoiceError(f"{RESOURCE}: {error}") from error


def read_choice(text: str) -> dict[str, list[str]]:
    """Return the annotation's value as container -> ids; an empty text chooses nothing.

    Raises:
        GpuChoiceError: it is not of that form.
    """
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(ids, list) and all(isinstance(one, str) for one in ids) for ids in found.values()
    ):
        raise GpuChoiceError(
            f'annotation {ANNOTATION} must be a JSON object such as {{"worker": ["GPU-…"]}}, found `{text}`'
        )
    return found


class GpuLedger:
    """The books over the GPUs of all nodes of one machine. Cost of a request: O(GPUs of the node)."""

    def __init__(self, nodes: Mapping[str, Inventory]) -> None:
        self._nodes = dict(nodes)
        self._holders: dict[str, str] = {}
        self._shares: dict[str, Shares] = {}

    def show(self, node: str, inventory: Inventory) -> None:
        """Take the GPUs of a node as they are now; what is held stays held."""
        self._nodes[node] = inventory

    def inventory(self, node: str) -> Inventory:
        """Return the GPUs of a node."""
        return self._nodes.get(node, Inventory())

    def free(self, node: str) -> list[str]:
        """Return the ids of a node's free and healthy GPUs, lowest index first."""
        gpus = sorted(self.inventory(node).gpus, key=lambda gpu: gpu.index)
        return [gpu.uuid for gpu in gpus if gpu.healthy and gpu.uuid not in self._holders]

    def held(self) -> dict[str, str]:
        """Return which pod (by uid) holds which GPU."""
        return dict(self._holders)

    def shares(self, uid: str) -> Shares:
        """Return what a pod holds, container by container."""
        return dict(self._shares.get(uid, {}))

    def take(self, request: GpuRequest) -> Shares:
        """Give a pod its GPUs, all or none; a pod that has them already keeps them.

        Raises:
            GpusTakenError: too few are free, or one that was chosen is held by another pod.
            GpuChoiceError: an id is unknown on this node, chosen twice, or their number is not the one asked.
        """
        if request.uid in self._shares:
            return self.shares(request.uid)
        if not request.total:
            return {}
        given = self._choose(request)
        self._write(request.uid, given)
        return dict(given)

    def reserve(self, uid: str, shares: Mapping[str, Iterable[str]]) -> list[str]:
        """Note what a running pod holds, as an agent before this one gave it.

        Returns:
            Ids that another pod holds as well: a damaged record, for the log. The first holder keeps them.
        """
        given = {name: tuple(ids) for name, ids in shares.items()}
        contested = [one for ids in given.values() for one in ids if self._holders.get(one, uid) != uid]
        self._write(
            uid, {name: tuple(one for one in ids if one not in contested) for name, ids in given.items()}
        )
        return contested

    def release(self, uid: str) -> tuple[str, ...]:
        """Free what a pod holds, and return it."""
        self._shares.pop(uid, None)
        freed = tuple(one for one, holder in self._holders.items() if holder == uid)
        for one in freed:
            del self._holders[one]
        return freed

    def _write(self, uid: str, given: Shares) -> None:
        if any(given.values()):
            self._shares[uid] = given
            self._holders |= {one: uid for ids in given.values() for one in ids}

    def _choose(self, request: GpuRequest) -> Shares:
        chosen = {name: tuple(ids) for name, ids in request.chosen.items() if ids}
        self._check_choice(request, chosen)
        taken = {one for ids in chosen.values() for one in ids}
        free = [one for one in self.free(request.node) if one not in taken]
        given: Shares = {}
        for name, count in request.running.items():
            given[name] = chosen.get(name) or self._next(free, count, request)
        pool = [one for ids in given.values() for one in ids]
        for name, count in request.starting.items():
            if name in chosen:
                given[name] = chosen[name]
                continue
            pool += self._next(free, max(0, count - len(pool)), request)
            given[name] = tuple(pool[:count])
        return {name: ids for name, ids in given.items() if ids}

    def _next(self, free: list[str], count: int, request: GpuRequest) -> tuple[str, ...]:
        if count > len(free):
            raise GpusTakenError(
                f"waits for {request.total} GPUs of node {request.node}: "
                f"{len(self.free(request.node))} of {self.inventory(request.node).in_words} are free"
            )
        taken, free[:count] = tuple(free[:count]), []
        return taken

    def _check_choice(self, request: GpuRequest, chosen: Shares) -> None:
        wanted = {**request.starting, **request.running}
        known = {gpu.uuid: gpu for gpu in self.inventory(request.node).gpus}
        together = [one for name, ids in chosen.items() if name in request.running for one in ids]
        for name, ids in chosen.items():
            if name not in wanted or len(ids) != wanted[name]:
                raise GpuChoiceError(
                    f"annotation {ANNOTATION} gives container {name} {len(ids)} GPUs, "
                    f"its limit {RESOURCE} is {wanted.get(name, 0)}"
                )
            for one in ids:
                if one not in known:
                    raise GpuChoiceError(f"annotation {ANNOTATION}: node {request.node} has no GPU {one}")
                if together.count(one) > 1 or ids.count(one) > 1:
                    raise GpuChoiceError(f"annotation {ANNOTATION} gives GPU {one} twice")
        for one in (one for ids in chosen.values() for one in ids):
            if not known[one].healthy:
                raise GpusTakenError(f"waits for GPU {one}, which does not answer")
            if one in self._holders:
                raise GpusTakenError(f"waits for GPU {one}, which another pod holds")
