"""Read a snapshot from a file: the Kubernetes objects of a cluster, as YAML or JSON. Text in, values out.

``kubectl get nodes,pods,podgroups.scheduling.x-k8s.io,priorityclasses -A -o yaml`` writes one. The format:
docs/guides/library.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from gangline.api.core import Node, Pod
from gangline.api.pod_group import PodGroup, PriorityClass
from gangline.errors import UserError
from gangline.placement.affinity.namespaces import Namespaces
from gangline.placement.claims.volumes import Storage
from gangline.placement.gangs import Group, Groups
from gangline.placement.groups.read_groups import read_composite, read_group, read_workload
from gangline.placement.policy import Policy, Queue
from gangline.placement.preemption.disruption import DisruptionBudget
from gangline.placement.snapshot import NodeView, PodView, Snapshot

STORAGE = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
BUDGET = "PodDisruptionBudget"
KINDS = (
    "Node",
    "Pod",
    "PodGroup",
    "CompositePodGroup",
    "Workload",
    "PriorityClass",
    "Queue",
    "Namespace",
    BUDGET,
    *STORAGE,
)
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """All that one pass of the scheduler looks at.

    Attributes:
        snapshot: nodes, and the pods that hold room on them.
        waiting: pods without a node, in the order of the file.
        groups: what is said about gangs, by ``NAMESPACE/NAME``.
        queues: with their quota, by name.
    """

    snapshot: Snapshot
    waiting: tuple[PodView, ...] = ()
    groups: dict[str, Group] = {}
    queues: dict[str, Queue] = {}

    def policy(self, *, levels: tuple[str, ...] = ()) -> Policy:
        """Return the default policy with these queues, and levels of the network from wide to narrow."""
        return Policy(levels=levels, queues=self.queues)


def read_snapshot(text: str, *, name: str = "the snapshot") -> Situation:
    """Return what a snapshot file says.

    Args:
        text: of the file: objects of the kinds :data:`KINDS`, or lists of them, as YAML documents or JSON.
        name: of the file, for messages.

    Raises:
        UserError: the text is no YAML, an object has another kind or a field of another type, or two objects
            have the same name.
    """
    try:
        documents = list(yaml.load_all(text, Loader=LOADER))
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UserError(f"{name} cannot be read{line}: it is no YAML") from None
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    known: set[tuple[str, str, str]] = set()
    for number, entry in enumerate(_objects(documents, name), 1):
        kind, key = _identity(entry, f"object {number} of {name}")
        version = str(entry.get("apiVersion", "")).partition("/")[0]
        if (kind, version, key) in known:
            raise UserError(f"{name} has two objects {kind} `{key}`")
        known.add((kind, version, key))
        found[kind].append(_typed(kind, entry, f"{kind} `{key}` of {name}"))
    classes = {entry.metadata.name: entry for entry in found["PriorityClass"]}
    namespaces = Namespaces()
    if found["Namespace"]:
        namespaces.take(found["Namespace"])
    pods = [namespaces.applied(PodView.from_pod(pod)) for pod in found["Pod"] if not pod.is_finished]
    storage = _storage(found)
    groups = [read_group(group, classes) for group in found["PodGroup"]]
    groups += [read_composite(group, classes) for group in found["CompositePodGroup"]]
    groups += [group for workload in found["Workload"] for group in read_workload(workload, classes)]
    return Situation(
        snapshot=Snapshot(
            nodes=tuple(NodeView.from_node(node) for node in found["Node"]),
            pods=tuple(pod for pod in pods if pod.node_name),
            budgets=tuple(filter(None, map(DisruptionBudget.from_object, found[BUDGET]))),
        ),
        waiting=tuple(storage.applied(pod) for pod in pods if not pod.node_name),
        groups=Groups({group.key: group for group in groups}),
        queues={queue.name: queue for queue in found["Queue"]},
    )


def _storage(found: dict[str, list[Any]]) -> Storage:
    """Return the claims and volumes; a file without any says nothing about them."""
    storage = Storage()
    if any(found[kind] for kind in STORAGE):
        storage.take(*(found[kind] for kind in STORAGE))
    return storage


def _objects(documents: list[Any], name: str) -> Iterator[dict[str, Any]]:
    for document in documents:
        if document is None:
            continue
        if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
            yield from _objects(document.get("items") or [], name)
        elif isinstance(document, dict):
            yield document
        else:
            raise UserError(f"{name} must hold Kubernetes objects (found a {type(document).__name__})")


def _identity(entry: dict[str, Any], where: str) -> tuple[str, str]:
    kind, meta = entry.get("kind"), entry.get("metadata")
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise UserError(f"{where} has kind `{kind}`", hint=f"a snapshot has {known}, and lists of them")
    if not isinstance(meta, dict) or not meta.get("name"):
        raise UserError(f"{where}, a {kind}, has no metadata.name")
    if kind in ("Pod", "PodGroup", "CompositePodGroup", "Workload", "PersistentVolumeClaim", BUDGET):
        meta.setdefault("namespace", "default")
        return kind, f"{meta['namespace']}/{meta['name']}"
    return kind, str(meta["name"])


def _typed(kind: str, entry: dict[str, Any], where: str) -> Any:
    """Return the object as a typed value; a pod without a uid is known by its name."""
    try:
        if kind == "Node":
            return msgspec.convert(entry, Node, strict=False)
        if kind == "Pod":
            meta = entry["metadata"]
            meta.setdefault("uid", f"{meta['namespace']}/{meta['name']}")
            return msgspec.convert(entry, Pod, strict=False)
        if kind in ("PodGroup", "CompositePodGroup", "Workload"):
            return msgspec.convert(entry, PodGroup, strict=False)
        if kind == "PriorityClass":
            return msgspec.convert(entry, PriorityClass, strict=False)
        if kind == "Queue":
            return Queue.from_volcano(entry)
    except (msgspec.ValidationError, ValueError) as error:
        raise UserError(f"{where}: {error}") from None
    return entry
