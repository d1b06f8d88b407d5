"""What the scheduler knows: nodes, pods that hold room, gangs that wait. No input or output.

Bindings that are decided and not yet seen in the cache are *assumed*: they hold their room from the
decision on, so that nothing is promised twice. The arrays of :class:`NodeTable` are kept between passes; only
the rows of nodes that have changed, or whose pods have, are written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gangline.api.core import Node, Pod
from gangline.api.resources import Resource
from gangline.placement import (
    Binding,
    Gang,
    Group,
    Groups,
    NodeTable,
    NodeView,
    PodView,
    Snapshot,
)
from gangline.placement.allocations import Allocations, gang_key
from gangline.placement.gangs import REPLICA_SLASHES
from gangline.placement.groups.collect import collect_gangs, leaves
from gangline.placement.snapshot import HOSTNAME_LABEL, given_gpus
from gangline.scheduler.applied_pods import AppliedPods
from gangline.scheduler.kept import KeptPod, SeenPod, main_of
from gangline.scheduler.pending_pods import PendingPods
from gangline.scheduler.set_gangs import Obj, SetGangs
from gangline.workloads.gpus import ANNOTATION as GPUS_ANNOTATION
from gangline.workloads.suspension import CHECKPOINT_ANNOTATION

INSERTS_MAX = 64
"""New nodes that are put into the arrays one by one, which moves all of them; for more they are made anew."""


class SchedulerState:
    """Views of the cluster, changed one object at a time.

    Every ``take`` returns whether the change may let a waiting pod in, so that a pass is due.

    Args:
        names: scheduler names of the pods that are placed here.
        levels: labels of nodes from the widest domain to the narrowest.
    """

    def __init__(self, names: tuple[str, ...], levels: tuple[str, ...] = ()) -> None:
        self._names = names
        self._nodes: dict[str, NodeView] = {}
        self._groups = Groups()
        self._allocations = Allocations(groups=self._groups)
        self._changed: set[str] = set()
        self._assumed: set[str] = set()
        self._pending = PendingPods()
        self._paused: set[str] = set()
        self._applied = AppliedPods()
        self.storage = self._applied.storage
        """Claims, volumes and storage classes; whoever changes it calls :meth:`take_storage`."""
        self.devices = self._applied.devices
        """Claims of devices and what nodes publish: :meth:`take_claim`, :meth:`take_nodes_devices`."""
        self.namespaces = self._applied.namespaces
        """Labels of namespaces; whoever changes them calls :meth:`take_namespaces`."""
        self.growing: set[str] = set()
        """Gangs that have got a pod and lack others still, until somebody takes them from here."""
        self._table = NodeTable(levels, claimed=self.devices.held)
        self._bare_nodes: dict[str, NodeView] = {}  # without the devices that they publish
        self._set_gangs = SetGangs(self._allocations.succeeded)

    @property
    def allocations(self) -> Allocations:
        """The pods that hold room."""
        return self._allocations

    @property
    def groups(self) -> Mapping[str, Group]:
        """What is said about gangs."""
        return self._groups

    def take_node(self, old: Node | None, new: Node | None) -> bool:
        """Take a node as it is now; heartbeats change nothing."""
        if new is None:
            if old is not None:
                self._nodes.pop(old.metadata.name, None)
                self._bare_nodes.pop(old.metadata.name, None)
                self._changed.add(old.metadata.name)
            return old is not None and bool(self._pending)
        self._bare_nodes[new.metadata.name] = bare = NodeView.from_node(new)
        view = self.devices.on_node(bare)
        if self._nodes.get(view.name) == view:
            return False
        self._nodes[view.name] = view
        self._changed.add(view.name)
        return bool(self._pending)

    def take_group(self, key: str, group: Group | None) -> bool:
        """Take what is said about a gang now."""
        if self._groups.get(key) == group:
            return False
        if group is None:
            del self._groups[key]
        else:
            self._groups[key] = group
            self._know_level(group.required_level)
        replica = f"{key}/"
        gangs = self._allocations.by_gang
        if key.count("/") == REPLICA_SLASHES - 1:  # only these have replicas
            found = [pods for name, pods in gangs.items() if name == key or name.startswith(replica)]
        else:
            found = [gangs.get(key, {})]
        for pod in [pod for pods in found for pod in pods.values()]:
            self._allocations.add(pod)  # it may use another queue now
        if group is not None and group.min_groups is not None:
            return bool(self._pending)  # what waits may be one of its groups
        return any(gang == key or gang.startswith(replica) for gang in self._pending.gangs())

    def groups_of(self, key: str) -> tuple[str, ...]:
        """Return a group, those that it consists of and those above: what is said of it holds for all."""
        group = self._groups.get(key)
        if group is None or group.min_groups is None:
            return (key,)
        found = dict.fromkeys((key, *leaves(key, self._groups)))
        return tuple(found | dict.fromkeys(up for leaf in found for up in self.groups_above(leaf)))

    def groups_above(self, key: str) -> tuple[str, ...]:
        """Return the groups of groups that a group is in, the nearest first."""
        return tuple(group.key for group in self._allocations.above(self._groups.get(key)))

    def take_pod(self, old: SeenPod | None, new: Pod | None) -> bool:
        """Take a pod as it is now."""
        if new is None and old is None:
            return False
        last = None if old is None or new is not None else KeptPod.of(old)
        uid = new.metadata.uid if new is not None else last.uid if last is not None else ""
        self._set_gangs.take_pod(uid, new)
        if new is None or new.is_finished:
            job = main_of(new) if new is not None else last.main_of if last is not None else ""
            self._note_end(job, is_over=new is not None and new.status.phase == "Succeeded")
            held = self._remove(uid)
            waited = self._drop_pending(uid)
            self._assumed.discard(uid)
            self._applied.drop(uid)
            return (held or waited) and bool(self._pending)
        if new.spec.node_name:
            waited = self._drop_pending(uid)  # True where another scheduler has bound it
            self._assumed.discard(uid)
            if not self._is_known(new):
                self._add(self._applied.take(self.view_of(new)))
            return waited and bool(self._pending)
        if new.spec.scheduler_name not in self._names or new.metadata.deletion_timestamp:
            return self._drop_pending(uid) and bool(self._pending)
        if uid in self._assumed:
            return False
        return self._take_waiting(old, new)

    def _note_end(self, job: str, *, is_over: bool) -> None:
        """Note whether a job is over because its main pod has succeeded; its workers may stay, and idle."""
        if job:
            (self._allocations.over.add if is_over else self._allocations.over.discard)(job)

    def _is_known(self, pod: Pod) -> bool:
        """Return whether the view of a bound pod is up to date in what placement reads."""
        known = self._allocations.get(pod.metadata.uid)
        return (
            known is not None
            and known.node_name == pod.spec.node_name
            and (
                bool(known.claim_shares or known.devices)
                or set(known.gpu_uuids) == set(given_gpus(pod.metadata.annotations.get(GPUS_ANNOTATION)))
            )
            and known.is_ending == bool(pod.metadata.deletion_timestamp)
            and known.saved == pod.metadata.annotations.get(CHECKPOINT_ANNOTATION, known.saved)
            and known.is_controlled == (pod.metadata.controller is not None)
            and (known.limit_s is None or known.started == (pod.status.start_time or known.started))
        )

    def _take_waiting(self, old: SeenPod | None, new: Pod) -> bool:
        uid = new.metadata.uid
        if uid in self._pending and isinstance(old, Pod):
            before, after = (
                (pod.spec, pod.metadata.labels, pod.status.resource_claim_statuses) for pod in (old, new)
            )
            if before == after:
                return False
        view = self._pending[uid] = self._applied.take(self.view_of(new))
        for claim in self.devices.newly_shared(view):
            self.take_devices(claim)
        self._know_level(view.required_level)
        if not view.gated and self._is_lacking(view):
            self.growing.add(view.gang)
            return False
        return not view.gated

    def _is_lacking(self, pod: PodView) -> bool:
        """Return whether the gang of a waiting pod lacks pods or its PodGroup: none of it starts before."""
        if not pod.gang:
            return False
        group: Group | None = self._groups.get(pod.gang)
        said = (
            group.min_member if group else max(one.gang_size for one in self._pending.of(pod.gang).values())
        )
        is_known = group is not None or said > 0
        return not is_known or self._pending.count(pod.gang) + self._allocations.placed(pod.gang) < said

    def view_of(self, pod: Pod) -> PodView:
        """Return the view of a pod, with the gang that it is in by what it is of."""
        return PodView.from_pod(pod, self._set_gangs.sets)

    def take_set(self, resource: Resource, old: Obj | None, new: Obj | None) -> bool:
        """Take a JobSet or a LeaderWorkerSet as it is now, and look at the gangs of its pods again."""
        is_news = False
        for uid, gang in self._set_gangs.take_set(resource, old, new):
            self._applied.join(uid, gang)
            held, waiting = self._allocations.get(uid), self._pending.get(uid)
            if held is not None and (held.gang, held.gang_size) != gang:
                self._allocations.add(msgspec.structs.replace(held, gang=gang.key, gang_size=gang.size))
            if waiting is not None and (waiting.gang, waiting.gang_size) != gang:
                self._pending[uid] = msgspec.structs.replace(waiting, gang=gang.key, gang_size=gang.size)
                is_news = True
        return is_news

    def take_storage(self) -> bool:
        """Look at the claims of volumes of waiting pods again."""
        return self._look_at(self._applied.with_volumes())

    def take_namespaces(self) -> bool:
        """Look at the terms of pods about namespaces again."""
        return self._look_at(self._applied.selecting())

    def take_nodes_devices(self, nodes: Iterable[str] | None) -> bool:
        """Look again at the devices that nodes publish, None for all nodes, and at what claims ask for."""
        is_news = False
        for name in list(self._bare_nodes) if nodes is None else nodes:
            bare = self._bare_nodes.get(name)
            if bare is not None and (node := self.devices.on_node(bare)) != self._nodes.get(name):
                self._nodes[name] = node
                self._changed.add(name)
                is_news = bool(self._pending)
        return self.take_devices() or is_news

    def take_claim(self, key: str, claim: dict[str, Any] | None) -> bool:
        """Take a claim of devices as it is now, None once it is gone."""
        is_news = self.devices.is_news(key, claim)
        moved = self.devices.take_claim(key, claim)
        if not is_news:
            return False
        self._changed.update(filter(None, map(self.devices.pools.node_of, moved)))
        if moved:
            self._table.room.forget_derived()
        return self.take_devices(key) or (bool(moved) and bool(self._pending))

    def take_devices(self, claim: str = "") -> bool:
        """Look again at the pods with a claim of devices, or with any."""
        return self.devices.is_known and self._look_at(self._applied.with_devices(claim))

    def _look_at(self, pods: Iterable[PodView]) -> bool:
        """Look again at pods, which are given as they say it."""
        is_news = False
        for said in pods:
            uid, view, held = said.uid, self._applied.view(said), self._allocations.get(said.uid)
            if held is not None:
                new = msgspec.structs.replace(held, relations=view.relations)
                if said.node_name:  # else it was decided here what it holds
                    holds = {"request": view.request, "gpu_uuids": view.gpu_uuids, "devices": view.devices}
                    new = msgspec.structs.replace(new, **holds)
                if new != held:
                    self._add(new)
                    is_news = is_news or bool(self._pending)
            if uid in self._pending and view != self._pending[uid]:
                self._pending[uid] = view
                is_news = True
        return is_news

    def may_start_with(self, claim: str) -> bool:
        """Return whether a pod with a claim of devices waits for a node, and asks for nothing refused."""
        found = (self._pending.get(uid) for uid in self.devices.users.get(claim, ()))
        return any(pod is not None and not pod.refusal for pod in found)

    def idle_claims(self, waiting: Iterable[str]) -> list[str]:
        """Return the allocated claims of pods that wait, by uid, which are for nobody else."""
        pods = [pod for uid in waiting if (pod := self._pending.get(uid)) is not None]
        keys = dict.fromkeys(key for pod in pods for key in pod.named_claims)
        return [key for key in keys if self.devices.is_idle(key, self._pending)]

    def claims_to_make(self, uid: str) -> list[str]:
        """Return the claims of an assumed pod whose volumes are made on its node."""
        held = self._allocations.get(uid)
        return self.storage.selects_node(held) if held is not None and held.claims else []

    def _know_level(self, level: str) -> None:
        """Have nodes be a level from the first gang on that asks for it: others need not pay for it."""
        if level == HOSTNAME_LABEL and level not in self._table.levels:
            self._table = NodeTable((*self._table.levels, level), claimed=self.devices.held)
            self._changed.update(self._nodes)

    def _drop_pending(self, uid: str) -> bool:
        """Forget a pod that waits no longer; return whether it did: others may have waited behind it."""
        return self._pending.pop(uid, None) is not None

    def _add(self, view: PodView) -> None:
        self._remove(view.uid)
        self._allocations.add(view)
        self._changed.add(view.node_name)

    def _remove(self, uid: str) -> bool:
        held = self._allocations.remove(uid)
        if held is not None:
            self._changed.add(held.node_name)
        return held is not None

    def table(self) -> NodeTable:
        """Return the nodes as arrays, up to date.

        Cost: 20 µs for each node that has changed, or its pods; 25 µs for each there is, where many are new.
        """
        new = sum(1 for name in self._changed if name in self._nodes and self._table.index(name) < 0)
        if new > INSERTS_MAX:
            held, levels = self.devices.held, self._table.levels
            self._table = NodeTable.of(self._nodes.values(), self._allocations, levels, claimed=held)
            self._changed.clear()
        for name in sorted(self._changed):
            view = self._nodes.get(name)
            if view is None:
                self._table.drop_node(name)
            else:
                self._table.set_node(view, self._allocations.by_node.get(name, {}).values())
        self._changed.clear()
        return self._table

    def snapshot(self) -> Snapshot:
        """Return the nodes, and the pods that hold room on them, as plain values."""
        return Snapshot(
            nodes=tuple(self._nodes.values()),
            pods=tuple(self._allocations),
            succeeded=dict(self._allocations.succeeded),
            budgets=tuple(self._allocations.budgets.values()),
            claimed=frozenset(self.devices.held),
        )

    def waiting(self) -> list[PodView]:
        """Return the pods to place; those of paused gangs are not among them."""
        if not self._paused:
            return list(self._pending.values())
        return [pod for pod in self._pending.values() if gang_key(pod) not in self._paused]

    def gangs(self) -> list[Gang]:
        """Return the gangs to place."""
        return collect_gangs(self.waiting(), self._groups, self._allocations.placed)

    def half_bound(self, gang: Gang) -> list[PodView]:
        """Return the bound pods of a gang that was bound half, by a scheduler that ended or lost its answers.

        Pods that are made anew beside others of their gang that run are younger than the binding of those;
        here one was there already, and was not bound with them.
        """
        others = (self._allocations.by_gang.get(key, {}) for key in gang.keys)
        bound = [pod for pods in others for pod in pods.values() if pod.node_name and not pod.is_ending]
        since = min((pod.bound for pod in bound if pod.bound), default="")
        is_half = gang.needed > 0 and since and any(pod.created <= since for pod in gang.pods)
        return bound if is_half else []

    def members(self, gang: str) -> list[PodView]:
        """Return all pods of a gang that wait or hold room."""
        keys = leaves(gang, self._groups)
        held = (self._allocations.by_gang.get(key, {}) for key in keys)
        found = (*held, *map(self._pending.of, keys))
        return [pod for pods in found for pod in pods.values()]

    def is_broken(self, gang: str, size: int) -> bool:
        """Return whether a gang is alive with fewer bound pods than must start together.

        Args:
            gang: its key.
            size: what its pods say, where no PodGroup does.
        """
        group = self._groups.get(gang)
        members = self.members(gang)
        staying = sum(1 for pod in members if pod.node_name and not pod.is_ending)
        staying += self._allocations.succeeded[gang]
        return bool(members) and staying < (group.min_member if group else size)

    def on_unhealthy_gpus(self, node: str) -> list[tuple[PodView, int]]:
        """Return the pods that hold an unhealthy GPU of a node, by name, each with the GPU's index."""
        view = self._nodes.get(node)
        if view is None or view.gpus is None or view.gpus.healthy == view.gpus.machine.everything:
            return []
        found = [
            (pod, view.gpus.indices[sick.bit_length() - 1])
            for pod in self._allocations.by_node.get(node, {}).values()
            if (sick := view.gpus.mask_of(pod.gpu_uuids) & ~view.gpus.healthy)
        ]
        return sorted(found, key=lambda entry: entry[0].key)

    def assume(self, binding: Binding) -> None:
        """Hold room for a decision that is being carried out."""
        view = self._pending.pop(binding.uid)
        self._assumed.add(binding.uid)
        self.devices.pending |= view.to_allocate
        held = self._allocations.get(binding.uid)
        if held is None:
            self._allocations.add(view.placed(binding.node, binding.uuids))
        self._changed.add(binding.node)

    def is_gang(self, bindings: Sequence[Binding]) -> bool:
        """Return whether these are of a gang, which starts whole or not at all."""
        return any((pod := self._allocations.get(one.uid)) is not None and pod.gang for one in bindings)

    def is_overbooked(self, bindings: Sequence[Binding]) -> bool:
        """Return whether a node has been given away meanwhile that was chosen for one of these."""
        table = self.table()
        for binding in bindings:
            row, pod = table.index(binding.node), self._allocations.get(binding.uid)
            if row < 0 or pod is None:
                return True
            if any(table.room.free[row, column] < 0 for column, _ in table.amounts(pod)):
                return True
        return False

    def revoke(self, binding: Binding) -> None:
        """Give the room of a failed binding back; pause its gang, or it is placed again at once."""
        if binding.uid not in self._assumed:
            return
        self._assumed.discard(binding.uid)
        view = self._allocations.remove(binding.uid)
        if view is not None:
            self._changed.add(view.node_name)
            self._pending[binding.uid] = view.placed("", ())
            self.devices.pending -= view.to_allocate
            for claim in view.to_allocate:
                self.take_devices(claim)

    def give_back(self, uid: str) -> None:
        """Give back the room that is held under an identity."""
        self._remove(uid)

    def pause(self, gang: str) -> None:
        """Place no pod of a gang, nor those that are made anew for it, until :meth:`resume`."""
        self._paused.update(leaves(gang, self._groups))

    def resume(self, gang: str) -> None:
        """Let a gang be placed again."""
        self._paused.difference_update(leaves(gang, self._groups))
