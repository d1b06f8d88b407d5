"""Which pod holds which GPU: none twice, none lost. Values and rules only, no input or output.

Ids come from the pod's annotation ``gangline.dev/gpus`` where it has one, else the lowest free index first,
as the stock device plugin does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gangline.api.core import Pod
from gangline.devices.inventory import RESOURCE, DeviceInventory
from gangline.workloads.gpus import ANNOTATION, VISIBLE_ANNOTATION, gpu_shares, read_gpus

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
        shares: container -> which of the pod's GPUs; see :func:`gangline.workloads.gpus.gpu_shares`.
        starting: those among them that end before later ones start, and so use the GPUs of these.
        chosen: container -> ids, from the annotation.
        visible: ids of the only GPUs that it may get; None for any.
    """

    uid: str
    node: str
    shares: Mapping[str, range]
    starting: frozenset[str]
    chosen: Mapping[str, Sequence[str]]
    visible: frozenset[str] | None = None

    @classmethod
    def of(cls, pod: Pod) -> GpuRequest:
        """Return the request of a pod.

        Raises:
            GpuChoiceError: the annotation or an amount cannot be read.
        """
        init, visible = pod.spec.init_containers, pod.metadata.annotations.get(VISIBLE_ANNOTATION)
        try:
            return cls(
                uid=pod.metadata.uid,
                node=pod.spec.node_name,
                shares=gpu_shares(pod.spec),
                starting=frozenset(one.name for one in init if one.restart_policy != "Always"),
                chosen=read_gpus(pod.metadata.annotations.get(ANNOTATION)),
                visible=None if visible is None else frozenset(visible.split(",")),
            )
        except ValueError as error:
            raise GpuChoiceError(str(error)) from error

    @property
    def total(self) -> int:
        """How many GPUs the pod needs at once."""
        return max((share.stop for share in self.shares.values()), default=0)

    def beside(self, starting: str) -> list[str]:
        """Return the sidecars that run while an init container does."""
        first, running = self.shares[starting].start, self.shares.keys() - self.starting
        return [name for name in running if self.shares[name].start < first]


class GpuLedger:
    """The books over the GPUs of all nodes of one machine. Cost of a request: O(GPUs of the node)."""

    def __init__(self, nodes: Mapping[str, DeviceInventory]) -> None:
        self._nodes = dict(nodes)
        self._holders: dict[str, str] = {}
        self._shares: dict[str, Shares] = {}

    def show(self, node: str, inventory: DeviceInventory) -> None:
        """Take the GPUs of a node as they are now; what is held stays held."""
        self._nodes[node] = inventory

    def inventory(self, node: str) -> DeviceInventory:
        """Return the GPUs of a node."""
        return self._nodes.get(node, DeviceInventory())

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
        free = [one for one in self._usable(request) if one not in taken]
        given: Shares = {}
        for name, share in request.shares.items():
            if name not in request.starting:
                given[name] = chosen.get(name) or self._next(free, len(share), request)
        pool = [one for ids in given.values() for one in ids]
        for name in filter(request.starting.__contains__, request.shares):
            busy = {one for other in request.beside(name) for one in given.get(other, ())}
            usable, count = [one for one in pool if one not in busy], len(request.shares[name])
            more = self._next(free, max(0, count - len(usable)), request) if name not in chosen else ()
            pool += more
            given[name] = chosen.get(name) or (*usable, *more)[:count]
        return given

    def _usable(self, request: GpuRequest) -> list[str]:
        return [one for one in self.free(request.node) if request.visible is None or one in request.visible]

    def _next(self, free: list[str], count: int, request: GpuRequest) -> tuple[str, ...]:
        if count > len(free):
            known = self.inventory(request.node)
            named = [gpu.index for gpu in known.gpus if request.visible and gpu.uuid in request.visible]
            of_all = (
                "" if request.visible is None else f", counted are {', '.join(map(str, named)) or 'none'}"
            )
            raise GpusTakenError(
                f"waits for {request.total} GPUs of node {request.node}: "
                f"{len(self._usable(request))} of {known.in_words} are free{of_all}"
            )
        taken, free[:count] = tuple(free[:count]), []
        return taken

    def _check_choice(self, request: GpuRequest, chosen: Shares) -> None:
        wanted = {name: len(share) for name, share in request.shares.items()}
        known = {gpu.uuid: gpu for gpu in self.inventory(request.node).gpus}
        together = [one for name, ids in chosen.items() if name not in request.starting for one in ids]
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
