"""A cluster as placement sees it, read through its API by a command."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.core import Condition, Node, Pod
from gangline.api.pod_group import PodGroup, PriorityClass
from gangline.api.resources import (
    COMPOSITE_POD_GROUPS,
    DEVICE_CLASSES,
    KUBERNETES_POD_GROUPS,
    KUBERNETES_POD_GROUPS_V1ALPHA2,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SCHEDULER_PLUGINS_POD_GROUPS,
    STORAGE_CLASSES,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    WORKLOADS,
    Resource,
)
from gangline.errors import ClusterError
from gangline.jobs.gang import scheduler_verdict
from gangline.kube.errors import ApiError, Forbidden, NotFound
from gangline.placement import (
    DeviceClaims,
    DisruptionBudget,
    Group,
    Groups,
    Namespaces,
    NodeView,
    PodView,
    Policy,
    Queue,
    Snapshot,
    Storage,
)
from gangline.placement.allocations import gang_key
from gangline.placement.groups.read_groups import (
    read_composite,
    read_group,
    read_queue,
    read_workload,
)
from gangline.placement.snapshot import HOSTNAME_LABEL
from gangline.scheduler.explained.published import Published
from gangline.workloads.gang_names import succeeded_gang
from gangline.workloads.job_state import scheduler_of
from gangline.workloads.workload_sets import SET_LABELS, WorkloadSets

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

NODES_GOT_MAX = 128
"""Nodes that are asked for one by one; beyond that all are listed."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one look at a cluster found.

    Attributes:
        nodes: in wire form.
        pods: of all namespaces, in wire form.
        views: of the pods that are not over, by uid.
        snapshot: nodes, and the pods that hold room on them.
        groups: what is said about gangs, by key.
        verdicts: what their schedulers said last, where they say it on the PodGroup.
        policy: with the queues of the cluster.
        lacking: rights without which nodes, or pods of other namespaces, are not seen.
    """

    nodes: Sequence[Obj]
    pods: Sequence[Obj]
    views: Mapping[str, PodView]
    snapshot: Snapshot
    groups: Mapping[str, Group]
    policy: Policy
    verdicts: Mapping[str, Condition]
    lacking: tuple[str, ...] = ()

    def check_seen(self, what: str) -> None:
        """Refuse what needs all of the cluster.

        Raises:
            ClusterError: with the rights that are lacking.
        """
        if self.lacking:
            raise ClusterError(
                f"cannot {what}: you have no right to {', or to '.join(self.lacking)}",
                hint="an administrator gives it with a ClusterRole; `gangline explain JOB`, `gangline list` "
                "and `gangline top job` need the rights of a namespace alone",
            )

    def waiting(self, schedulers: Iterable[str] | None = None) -> list[PodView]:
        """Return the pods without a node; those of some schedulers, or of all."""
        names = None if schedulers is None else set(schedulers)
        return [
            self.views[pod["metadata"]["uid"]]
            for pod in self.pods
            if pod["metadata"]["uid"] in self.views
            and not pod["spec"].get("nodeName")
            and not pod["metadata"].get("deletionTimestamp")
            and (names is None or scheduler_of(pod) in names)
        ]

    def with_levels(self, levels: tuple[str, ...]) -> ClusterView:
        """Return the view with these levels of the network, and single nodes where a gang asks for one."""
        asked = {group.required_level for group in self.groups.values()}
        asked |= {view.required_level for view in self.views.values()}
        if HOSTNAME_LABEL in asked and HOSTNAME_LABEL not in levels:
            levels = (*levels, HOSTNAME_LABEL)
        return replace(self, policy=msgspec.structs.replace(self.policy, levels=levels))

    def as_seen_by(self, scheduler: Published) -> ClusterView:
        """Return the view with the options of a scheduler, and with the nodes that it uses alone."""
        snapshot = msgspec.structs.replace(
            self.snapshot, nodes=tuple(node for node in self.snapshot.nodes if scheduler.uses(node.labels))
        )
        found = replace(self, policy=scheduler.applied(self.policy), snapshot=snapshot)
        return found.with_levels(scheduler.levels)

    def gang_of(self, pod: Obj) -> str:
        """Return the key of the gang of a pod that is not over, else nothing."""
        view = self.views.get(pod["metadata"]["uid"])
        return gang_key(view) if view else ""


async def look(client: ObjectClient) -> ClusterView:
    """Read a cluster: nodes, pods, gangs, priorities and queues, all at once.

    Who may not see all of it sees what there is of the connection's namespace.

    Raises:
        ApiError: nodes or pods cannot be listed; the other kinds may be missing.
    """
    lacking: list[str] = []
    kinds = (
        NODES,
        PODS,
        SCHEDULER_PLUGINS_POD_GROUPS,
        VOLCANO_POD_GROUPS,
        KUBERNETES_POD_GROUPS,
        KUBERNETES_POD_GROUPS_V1ALPHA2,
        COMPOSITE_POD_GROUPS,
        PRIORITY_CLASSES,
        VOLCANO_QUEUES,
        WORKLOADS,
        POD_DISRUPTION_BUDGETS,
    )
    (
        nodes,
        pods,
        plain,
        volcano,
        own,
        older,
        composites,
        priorities,
        queues,
        workloads,
        budgets,
    ) = await asyncio.gather(*(_items(client, resource, lacking) for resource in kinds))
    storage, namespaces = await _storage(client, pods), await _namespaces(client, pods)
    view = view_of(
        nodes,
        pods,
        [*plain, *volcano, *older, *own],
        priorities,
        queues,
        storage=storage,
        devices=await _devices(client, are_claimed=any(pod["spec"].get("resourceClaims") for pod in pods)),
        namespaces=namespaces,
        workloads=workloads,
        budgets=tuple(filter(None, map(DisruptionBudget.from_object, budgets))),
        composites=[msgspec.convert(entry, PodGroup, strict=False) for entry in composites],
        sets=await _sets(client, {label for pod in pods for label in pod["metadata"].get("labels") or ()}),
    )
    return replace(view, lacking=tuple(sorted(lacking)))


async def look_near(client: ObjectClient, pods: Sequence[Obj]) -> ClusterView:
    """Return the view of some pods of one namespace: their nodes, and the gangs of that namespace.

    Raises:
        ApiError: the nodes cannot be read, for another reason than that one has no right to.
    """
    lacking: list[str] = []
    namespace = pods[0]["metadata"]["namespace"] if pods else client.connection.namespace
    kinds = (
        *(SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS),
        *(KUBERNETES_POD_GROUPS_V1ALPHA2, KUBERNETES_POD_GROUPS),
    )
    nodes, priorities, workloads, composites, *pod_groups = await asyncio.gather(
        _nodes_of(client, pods, lacking),
        _items(client, PRIORITY_CLASSES, []),
        *(_items_in(client, kind, namespace) for kind in (WORKLOADS, COMPOSITE_POD_GROUPS, *kinds)),
    )
    view = view_of(
        nodes,
        pods,
        [group for found in pod_groups for group in found],
        priorities,
        devices=await _devices(client, are_claimed=any(pod["spec"].get("resourceClaims") for pod in pods)),
        workloads=workloads,
        composites=[msgspec.convert(entry, PodGroup, strict=False) for entry in composites],
        sets=await _sets(client, {label for pod in pods for label in pod["metadata"].get("labels") or ()}),
    )
    return replace(view, lacking=tuple(lacking))


async def _nodes_of(client: ObjectClient, pods: Sequence[Obj], lacking: list[str]) -> list[Obj]:
    """Return the nodes of some pods, one by one where they are few."""
    names = {name for pod in pods if (name := pod["spec"].get("nodeName"))}
    if len(names) > NODES_GOT_MAX:
        return [node for node in await _items(client, NODES, lacking) if node["metadata"]["name"] in names]
    try:
        found = await asyncio.gather(*(_got(client, name) for name in sorted(names)))
    except Forbidden:
        lacking.append("list nodes")
        return []
    return [node for node in found if node is not None]


async def _got(client: ObjectClient, node: str) -> Obj | None:
    try:
        return await client.get(NODES, node)
    except NotFound:
        return None


async def _items_in(client: ObjectClient, resource: Resource, namespace: str) -> list[Obj]:
    """Return all objects of a kind in a namespace; the cluster may not know it, or not show it."""
    try:
        return (await client.list(resource, namespace)).items
    except ApiError:
        return []


def view_of(
    nodes: Sequence[Obj],
    pods: Sequence[Obj],
    pod_groups: Iterable[Obj] = (),
    priority_classes: Iterable[Obj] = (),
    queues: Iterable[Obj] = (),
    levels: tuple[str, ...] = (),
    storage: Storage | None = None,
    namespaces: Namespaces | None = None,
    devices: DeviceClaims | None = None,
    workloads: Iterable[Obj] = (),
    budgets: tuple[DisruptionBudget, ...] = (),
    composites: Iterable[PodGroup] = (),
    sets: WorkloadSets | None = None,
) -> ClusterView:
    """Return the view of objects in wire form. Pure."""
    sets = sets or WorkloadSets()
    storage, namespaces, devices = storage or Storage(), namespaces or Namespaces(), devices or DeviceClaims()
    found_classes = [msgspec.convert(entry, PriorityClass, strict=False) for entry in priority_classes]
    classes = {entry.metadata.name: entry for entry in found_classes}
    groups, verdicts = Groups(), {}
    for entry in pod_groups:
        pod_group = msgspec.convert(entry, PodGroup, strict=False)
        group = read_group(pod_group, classes)
        groups[group.key] = group
        if verdict := scheduler_verdict(pod_group):
            verdicts[group.key] = verdict
    for one in composites:
        composite = read_composite(one, classes)
        groups[composite.key] = composite
    for entry in workloads:
        replicas = read_workload(msgspec.convert(entry, PodGroup, strict=False), classes)
        groups.update((group.key, group) for group in replicas)
    found = [queue for entry in queues if isinstance(queue := read_queue(entry), Queue)]
    read = {pod["metadata"]["uid"]: msgspec.convert(pod, Pod, strict=False) for pod in pods}
    said = {uid: PodView.from_pod(pod, sets) for uid, pod in read.items() if not pod.is_finished}
    for pod_view in said.values():
        devices.note(pod_view)
    views = {uid: storage.applied(namespaces.applied(devices.applied(one))) for uid, one in said.items()}
    return ClusterView(
        nodes=nodes,
        pods=pods,
        views=views,
        snapshot=Snapshot(
            nodes=tuple(
                devices.on_node(NodeView.from_node(msgspec.convert(node, Node, strict=False)))
                for node in nodes
            ),
            pods=tuple(view for view in views.values() if view.node_name),
            succeeded=Counter(
                gang for pod in read.values() if (gang := succeeded_gang(pod) or sets.succeeded_gang(pod))
            ),
            budgets=budgets,
            claimed=frozenset(devices.held),
        ),
        groups=groups,
        policy=Policy(queues={queue.name: queue for queue in found}),
        verdicts=verdicts,
    ).with_levels(levels)


async def _sets(client: ObjectClient, labels: Collection[str]) -> WorkloadSets:
    """Return the JobSets and LeaderWorkerSets, where a pod has the label of one and they may be read."""
    sets = WorkloadSets()
    for resource, label in SET_LABELS.items():
        if label in labels:
            sets.take(resource, await _items(client, resource, []))
    return sets


async def _namespaces(client: ObjectClient, pods: Sequence[Obj]) -> Namespaces:
    """Return the labels of namespaces, where a pod has an affinity and they may be read."""
    found = Namespaces()
    if any(pod["spec"].get("affinity") for pod in pods):
        try:
            found.take((await client.list(NAMESPACES, None)).items)
        except ApiError:
            pass
    return found


async def _storage(client: ObjectClient, pods: Sequence[Obj]) -> Storage:
    """Return claims, volumes and classes where a waiting pod has a claim, and where they may be read."""
    storage = Storage()
    specs = [pod["spec"] for pod in pods if not pod["spec"].get("nodeName")]
    volumes = [volume for spec in specs for volume in spec.get("volumes") or []]
    if not any(volume.get("persistentVolumeClaim") or volume.get("ephemeral") for volume in volumes):
        return storage
    try:
        found = await asyncio.gather(
            *(
                client.list(kind, None)
                for kind in (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
            )
        )
    except ApiError:
        return storage
    storage.take(*(listed.items for listed in found))
    return storage


async def _devices(client: ObjectClient, *, are_claimed: bool) -> DeviceClaims:
    """Return claims of devices, where a pod has one and they may be read."""
    devices = DeviceClaims()
    if are_claimed:
        kinds = (RESOURCE_SLICES, DEVICE_CLASSES, RESOURCE_CLAIMS)
        try:
            found = await asyncio.gather(*(client.list(kind, None) for kind in kinds))
        except ApiError:
            return devices
        devices.take(*(listed.items for listed in found))
    return devices


async def _items(client: ObjectClient, resource: Resource, lacking: list[str]) -> list[Obj]:
    """Return all objects of a kind; the cluster may not know it, or not show it to everybody."""
    try:
        return (await client.list(resource, None)).items
    except Forbidden:
        if resource in (NODES, PODS):
            lacking.append(f"list {resource.plural}" + (" of all namespaces" if resource.namespaced else ""))
    except ApiError:
        if resource in (NODES, PODS):
            raise
        return []
    if not resource.namespaced:
        return []
    if resource == PODS:
        return (await client.list(resource, client.connection.namespace)).items
    return await _items_in(client, resource, client.connection.namespace)
