"""A snapshot: the nodes and pods that one scheduling decision looks at, reduced to what the filters read.

Views are made once for each version of an object and shared by all snapshots, so a snapshot costs one tuple.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from sys import intern
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.core import (
    NEVER_PREEMPTS,
    Node,
    ObjectMeta,
    Pod,
    Taint,
    Toleration,
    find_condition,
)
from gangline.api.pod_group import QUEUE_ANNOTATION
from gangline.clock import parse_time
from gangline.errors import UserError
from gangline.placement.affinity.terms import Relations
from gangline.placement.amounts import capacity_amounts
from gangline.placement.asked import asked_by
from gangline.placement.claims.named import claim_users, device_claims, volume_claims
from gangline.placement.preemption.disruption import DisruptionBudget
from gangline.placement.service import AttainedService
from gangline.topology import RATES_ANNOTATION, NodeGpus, read_annotation
from gangline.topology.annotation import ANNOTATION as TOPOLOGY_ANNOTATION
from gangline.workloads.gang_names import gang_of, gang_size
from gangline.workloads.gpu_source import SOURCE_LABEL
from gangline.workloads.gpus import ANNOTATION as GPUS_ANNOTATION
from gangline.workloads.gpus import VISIBLE_ANNOTATION, read_gpus
from gangline.workloads.requests import device_count
from gangline.workloads.suspension import CHECKPOINT_ANNOTATION
from gangline.workloads.workload_sets import SetGang, WorkloadSets

if TYPE_CHECKING:
    from gangline.placement.claims.demands import ClaimDemand
    from gangline.placement.claims.devices import DeviceId, Pool

JOB_NAME_LABELS = ("training.kubeflow.org/job-name", "batch.kubernetes.io/job-name", "job-name")
REPLICA_LABELS = ("training.kubeflow.org/job-role", "training.kubeflow.org/replica-type")
REQUIRED_TOPOLOGY = ("gangline.dev/required-topology", "kueue.x-k8s.io/podset-required-topology")
"""Annotations of pods and PodGroups: the nodes of the gang must agree in this label. Ours, and Kueue's.

What Kueue's ``podset-preferred-topology`` asks for is done anyway: every level is preferred, the narrowest
first.
"""

HOSTNAME_LABEL = "kubernetes.io/hostname"
"""The narrowest level of every cluster: a gang that requires it lies on one node."""

MODE_LABEL = "ack.node.gpu.schedule"
BY_WIRES = "topology"
"""Value of that label on nodes whose GPUs are chosen by their links; pods of other schedulers are kept away.

Without the label this is the way on nodes whose GPUs we hand out ourselves, as their label
``gangline.dev/gpu-source`` says; on others the lowest ids go first.
"""

BY_INDEX = "default"
"""Value that says so; another value, for example a slip of the pen, counts as this one."""

BY_WIRES_TAINT = Taint(key="gangline.dev/gpu-schedule", value=BY_WIRES, effect="NoSchedule")
"""On these nodes: keeps the pods of other schedulers away. Every pod that is placed here tolerates it."""

HELD_TAINT = Taint(key="gangline.dev/held", value="gang", effect="NoSchedule")
"""On nodes that a gang is about to be bound to, or waits for: the same, for as long as that takes."""

MODEL_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "cloud.google.com/gke-tpu-accelerator",
    "cloud.google.com/gke-accelerator",
)
"""Labels of nodes that name the model of their devices: GPU feature discovery's, the makers', GKE's."""

NO_CLAIMS = frozenset[str]()

OWN_TAINTS = frozenset([BY_WIRES_TAINT.key, HELD_TAINT.key])

NOT_READY_TAINT = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"


class NodeView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One node.

    Attributes:
        name: the node's name.
        labels: its labels.
        taints: its taints, without those that are ours; a node that is not ready carries the taint that
            says so, whether or not a controller has written it.
        unschedulable: cordoned.
        allocatable: what pods may use together, in the units of :mod:`gangline.placement.amounts`.
        gpus: its GPUs and their links; None where the stock device plugin hands out ids, or there are none.
        by_wires: GPUs are chosen by their links, not lowest id first.
        by_claim: they go to resource claims alone.
        pools: devices of any driver that claims can get there.
    """

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: dict[str, int] = {}
    gpus: NodeGpus | None = None
    by_wires: bool = False
    by_claim: bool = False
    pools: tuple[Pool, ...] = ()

    @classmethod
    def from_node(cls, node: Node) -> NodeView:
        """Return the view of a node; allocatable that cannot be parsed counts as nothing."""
        taints = [taint for taint in node.spec.taints if taint.key not in OWN_TAINTS]
        if not node.is_ready:
            ready = find_condition(node.status.conditions, "Ready")
            key = UNREACHABLE_TAINT if ready is not None and ready.status == "Unknown" else NOT_READY_TAINT
            if not any(taint.key == key and taint.effect == "NoSchedule" for taint in taints):
                taints.append(Taint(key=key, effect="NoSchedule"))
        try:
            allocatable = capacity_amounts(node.status.allocatable or node.status.capacity)
        except ValueError:
            allocatable = {}
        return cls(
            name=node.metadata.name,
            labels=node.metadata.labels,
            taints=tuple(taints),
            unschedulable=node.spec.unschedulable,
            allocatable=allocatable,
            gpus=_gpus(node),
            by_wires=_way(node.metadata.labels) == BY_WIRES,
        )

    @property
    def has_mode_label(self) -> bool:
        """Whether it is labelled for its GPUs to be chosen by their links."""
        return self.labels.get(MODE_LABEL) == BY_WIRES

    @property
    def way(self) -> str:
        """How its GPUs are chosen, and who says so, for people; empty where there are none of known links."""
        if self.gpus is None:
            return ""
        said = f"label {MODE_LABEL}={self.labels[MODE_LABEL]}" if MODE_LABEL in self.labels else ""
        if self.by_claim:
            said = "it gives them to resource claims"
        if self.by_wires:
            return f"by their links ({said or 'the default where Gangline hands them out'})"
        return f"lowest index first ({said or 'the default where another device plugin hands them out'})"

    @property
    def devices(self) -> int:
        """Devices of any kind that the node has."""
        return device_count(self.allocatable)

    @property
    def model(self) -> str:
        """What its devices are, empty where nobody says."""
        told = next((self.labels[label] for label in MODEL_LABELS if label in self.labels), "")
        return told or (self.gpus.machine.gpu.product or self.gpus.machine.model if self.gpus else "")


def _way(labels: Mapping[str, str]) -> str:
    """Return the way in which the GPUs of a node are chosen: its label's, else by who hands them out."""
    return labels.get(MODE_LABEL, BY_WIRES if SOURCE_LABEL in labels else BY_INDEX)


def _gpus(node: Node) -> NodeGpus | None:
    """Return what the node tells about its GPUs; what cannot be read is told nobody here, see ``explain``."""
    notes = node.metadata.annotations
    text, name = notes.get(TOPOLOGY_ANNOTATION), node.metadata.name
    if not text:
        return None
    with suppress(UserError):
        return read_annotation(text, node=name, rates=notes.get(RATES_ANNOTATION, ""))
    with suppress(UserError):
        return read_annotation(text, node=name)
    return None


class PodView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod.

    Attributes:
        key: ``NAMESPACE/NAME``.
        uid: identity; another pod of the same name has another.
        job: ``NAMESPACE/JOB`` for a pod of a job, else empty.
        replica_type: the part that the pod plays in its job (``worker``), else empty.
        request: what it reserves, in the units of :mod:`gangline.placement.amounts`.
        host_ports: (protocol, port) pairs that it needs on the node.
        node_name: where it is bound, or empty.
        node_selector: labels that the node must have.
        node_terms: required node affinity, one term of which must hold; None where there is none.
        node_preferences: (weight, term) of preferred node affinity.
        labels: its labels. relations: what it asks of its neighbours, or None.
        claims: names of the volume claims that it mounts. own_claims: those among them that are made for it
        alone, of generic ephemeral volumes. volume_terms: node affinity of their volumes, one
        term of each must hold.
        tolerations: taints that it puts up with.
        gated: has scheduling gates, so that it is not considered.
        refusal: why no node can be right (a rule that is not served, a quantity that cannot be read), or
        empty. priority: higher goes first. may_preempt: whether others may be ended for it. created:
        creation time as written; older goes first. shape: equal for pods that fit on the same nodes.
        gang: ``NAMESPACE/NAME`` of its gang, or empty. gang_size: what its labels say where no PodGroup does.
        queue: whose quota it uses, or empty.
        gpu_shares: (container, first, end) of the containers that ask for GPUs: which of the pod's they get.
        device_claims: (name in the pod, name of the object or empty) of its claims of devices.
        claim_users: (container, name in the pod, request or empty) of the containers that use them.
        claim_shares: (claim, request, first, end): which of the pod's GPUs are for whom, once that is known.
        demands: (claim, what it asks for) of the claims that are allocated where it goes, without those that
        are GPUs of ours. devices: that its claims hold.
        visible_gpus: the only GPUs that it may get; None for any.
        gpu_uuids: the GPUs that it has been given, in the order of its containers.
        started: since when it runs. limit_s: after how many seconds it is ended, or None.
        bound: since when it has a node, as written. is_ending: it is being deleted: it holds its room, and
        counts no longer among the pods of its gang that are placed.
        required_level: label of nodes that must be equal for all pods of its gang, or empty.
        is_controlled: a controller makes it anew when it is deleted.
        saved: when its training last saved its state, or empty.
    """

    key: str
    uid: str = ""
    job: str = ""
    replica_type: str = ""
    request: dict[str, int] = {}
    host_ports: frozenset[tuple[str, int]] = frozenset()
    node_name: str = ""
    node_selector: dict[str, str] = {}
    node_terms: tuple[dict[str, Any], ...] | None = None
    node_preferences: tuple[tuple[int, dict[str, Any]], ...] = ()
    labels: dict[str, str] = {}
    relations: Relations | None = None
    claims: tuple[str, ...] = ()
    own_claims: tuple[str, ...] = ()
    volume_terms: tuple[tuple[dict[str, Any], ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    gated: bool = False
    refusal: str = ""
    priority: int = 0
    may_preempt: bool = True
    created: str = ""
    shape: bytes = b""
    gang: str = ""
    gang_size: int = 0
    queue: str = ""
    gpu_shares: tuple[tuple[str, int, int], ...] = ()
    device_claims: tuple[tuple[str, str], ...] = ()
    claim_users: tuple[tuple[str, str, str], ...] = ()
    claim_shares: tuple[tuple[str, str, int, int], ...] = ()
    demands: tuple[tuple[str, ClaimDemand], ...] = ()
    devices: frozenset[DeviceId] = frozenset()
    visible_gpus: Collection[str] | None = None
    gpu_uuids: tuple[str, ...] = ()
    started: str = ""
    limit_s: int | None = None
    bound: str = ""
    is_ending: bool = False
    required_level: str = ""
    is_controlled: bool = False
    saved: str = ""

    @classmethod
    def from_pod(cls, pod: Pod, sets: WorkloadSets | None = None) -> PodView:
        """Return the view of a pod, in the gang of its set if it names none. Cost: 12 µs for a worker.

        Pods that ask for the same share what says so.
        """
        meta, spec, annotations = pod.metadata, pod.spec, pod.metadata.annotations
        namespace, visible = meta.namespace, annotations.get(VISIBLE_ANNOTATION)
        asked = asked_by(spec, namespace, meta.labels, visible)
        labels = {intern(name): intern(value) for name, value in meta.labels.items()}
        claims, own = volume_claims(pod) if spec.volumes else ((), ())
        gang = _gang(pod, sets)
        job, role = job_and_role(meta)
        return cls(
            key=meta.key,
            uid=meta.uid,
            job=intern(job),
            replica_type=intern(role),
            request=asked.request,
            host_ports=asked.ports,
            node_name=intern(spec.node_name),
            node_selector=asked.node_selector,
            node_terms=asked.terms,
            node_preferences=asked.preferences,
            labels=labels,
            relations=asked.relations,
            claims=claims,
            own_claims=own,
            tolerations=asked.tolerations,
            gated=bool(spec.scheduling_gates),
            refusal=asked.refusal,
            priority=spec.priority,
            may_preempt=spec.preemption_policy != NEVER_PREEMPTS,
            created=intern(meta.creation_timestamp or ""),
            shape=asked.shape,
            gang=intern(gang.key),
            gang_size=gang.size,
            queue=intern(annotations.get(QUEUE_ANNOTATION, "")),
            device_claims=device_claims(pod) if spec.resource_claims else (),
            claim_users=claim_users(spec) if spec.resource_claims else (),
            gpu_shares=asked.shares,
            visible_gpus=None if visible is None else tuple(visible.split(",")),
            gpu_uuids=given_gpus(annotations.get(GPUS_ANNOTATION)),
            started=intern(pod.status.start_time or ""),
            limit_s=spec.active_deadline_seconds,
            bound=intern(_bound_at(pod)) if spec.node_name else "",
            is_ending=bool(meta.deletion_timestamp),
            saved=_time(annotations.get(CHECKPOINT_ANNOTATION, "")),
            required_level=intern(required_level(annotations)),
            is_controlled=meta.controller is not None,
        )

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return self.key.partition("/")[0]

    @property
    def named_claims(self) -> list[str]:
        """Claims of devices that it names and that are made, by ``NAMESPACE/NAME``."""
        return [f"{self.namespace}/{name}" for _, name in self.device_claims if name]

    @property
    def to_allocate(self) -> frozenset[str]:
        """Claims of devices that are allocated with it, by ``NAMESPACE/NAME``."""
        if not (self.demands or self.claim_shares):
            return NO_CLAIMS
        return frozenset(f"{self.namespace}/{claim}" for claim, *_ in (*self.demands, *self.claim_shares))

    def placed(
        self,
        node: str,
        gpu_uuids: tuple[str, ...],
        started: str = "",
        devices: frozenset[DeviceId] = frozenset(),
    ) -> PodView:
        """Return the pod as it is once it is bound to a node, with these GPUs and devices of claims."""
        return msgspec.structs.replace(
            self, node_name=node, gpu_uuids=gpu_uuids, started=started, devices=devices
        )


def job_and_role(meta: ObjectMeta) -> tuple[str, str]:
    """Return the job of a pod as ``NAMESPACE/JOB``, and what it is in it, as its labels say."""
    labels = meta.labels
    job = next((labels[name] for name in JOB_NAME_LABELS if labels.get(name)), "")
    role = next((labels[name] for name in REPLICA_LABELS if labels.get(name)), "")
    return f"{meta.namespace}/{job}" if job else "", role


def _gang(pod: Pod, sets: WorkloadSets | None) -> SetGang:
    named = gang_of(pod)
    return sets.gang_of(pod) if sets is not None and not named else SetGang(named, gang_size(pod))


def _time(text: str) -> str:
    """Return a time as written, empty where it is none."""
    if not text:
        return ""
    try:
        parse_time(text)
    except ValueError:
        return ""
    return text


def unknown_mode(labels: Mapping[str, str]) -> str:
    """Return what is wrong with the label of a node that says how its GPUs are chosen, or nothing."""
    value = labels.get(MODE_LABEL, BY_INDEX)
    if value in (BY_WIRES, BY_INDEX):
        return ""
    return f"{MODE_LABEL}={value} is not known and counts as {BY_INDEX}: use {BY_WIRES} or {BY_INDEX}"


def required_level(annotations: Mapping[str, str]) -> str:
    """Return the label of nodes that an object's annotations want to be equal for its gang, or nothing."""
    return next((annotations[key] for key in REQUIRED_TOPOLOGY if annotations.get(key)), "")


def _bound_at(pod: Pod) -> str:
    condition = find_condition(pod.status.conditions, "PodScheduled")
    return (condition.last_transition_time or "") if condition and condition.status == "True" else ""


def given_gpus(text: str | None) -> tuple[str, ...]:
    """Return the GPUs that an annotation :data:`GPUS_ANNOTATION` names, each once, in its order."""
    try:
        given = read_gpus(text)
    except ValueError:
        return ()  # the node agent says so
    return tuple(dict.fromkeys(intern(uuid) for uuids in given.values() for uuid in uuids))


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, and the pods that hold room on them (bound or about to be, and not finished).

    Attributes:
        nodes: of the cluster.
        pods: that hold room.
        succeeded: gangs with how many of their pods have succeeded, see
            :func:`gangline.workloads.gang_names.succeeded_gang`.
        services: what gangs have had before their present runs, by key.
        leaving: gangs that are about to be suspended.
        budgets: how many pods may go at once.
        claimed: devices that allocated claims hold.
    """

    nodes: tuple[NodeView, ...] = ()
    pods: tuple[PodView, ...] = ()
    succeeded: dict[str, int] = {}
    services: dict[str, AttainedService] = {}
    leaving: frozenset[str] = frozenset()
    budgets: tuple[DisruptionBudget, ...] = ()
    claimed: frozenset[DeviceId] = frozenset()

    def models_under(self, uids: Collection[str]) -> dict[str, list[str]]:
        """Return the nodes, by the model of the devices that some pods hold there."""
        nodes = {node.name: node for node in self.nodes}
        found: dict[str, set[str]] = {}
        for pod in self.pods:
            node = nodes.get(pod.node_name)
            if pod.uid in uids and node is not None and device_count(pod.request):
                found.setdefault(node.model or "unknown", set()).add(node.name)
        return {model: sorted(found[model]) for model in sorted(found)}
