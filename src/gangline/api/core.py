"""The parts of core/v1 and batch/v1 that Gangline reads, as frozen values.

Unknown fields are ignored on decoding, so these types are for reading only: what is written back or passed
through (a pod template, say) stays a plain dictionary. Field names follow the API in snake case.
Source: the published Kubernetes API reference, v1.35.
"""

# ruff: noqa: PLC0414 - the names of metadata are offered here as well, beside the kinds

from __future__ import annotations

from typing import Any

import msgspec

from gangline.api.metadata import Condition as Condition
from gangline.api.metadata import ObjectMeta as ObjectMeta
from gangline.api.metadata import OwnerReference as OwnerReference
from gangline.api.metadata import Wire as Wire
from gangline.api.metadata import find_condition as find_condition
from gangline.api.metadata import is_true as is_true
from gangline.api.volumes import ObjectFieldSelector, ResourceFieldSelector, Volume


class VolumeMount(Wire, frozen=True, kw_only=True):
    """Where a container sees a volume."""

    name: str
    mount_path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class KeySelector(Wire, frozen=True, kw_only=True):
    """One key of a config map or secret."""

    key: str
    name: str = ""
    optional: bool = False


class EnvVarSource(Wire, frozen=True, kw_only=True):
    """``valueFrom``; exactly one is set."""

    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(Wire, frozen=True, kw_only=True):
    """One environment variable."""

    name: str
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvFromRef(Wire, frozen=True, kw_only=True):
    """The config map or secret of an ``envFrom`` entry."""

    name: str = ""
    optional: bool = False


class EnvFrom(Wire, frozen=True, kw_only=True):
    """All keys of a config map or secret as variables."""

    prefix: str = ""
    config_map_ref: EnvFromRef | None = None
    secret_ref: EnvFromRef | None = None


class ResourceRequirements(Wire, frozen=True, kw_only=True):
    """Requests and limits; quantities as written."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}
    claims: list[dict[str, str]] = []


class ContainerPort(Wire, frozen=True, kw_only=True):
    """A port that a container says it serves."""

    container_port: int
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    name: str = ""
    protocol: str = "TCP"


class Capabilities(Wire, frozen=True, kw_only=True):
    """By name, with or without ``CAP_``, or ``ALL``."""

    add: list[str] = []
    drop: list[str] = []


class SecurityContext(Wire, frozen=True, kw_only=True):
    """The parts of both security contexts that the node agent obeys."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    supplemental_groups: list[int] = []
    supplemental_groups_policy: str = ""
    sysctls: list[dict[str, str]] = []
    privileged: bool = False
    capabilities: Capabilities = Capabilities()
    allow_privilege_escalation: bool | None = None
    read_only_root_filesystem: bool = False


class Container(Wire, frozen=True, kw_only=True):
    """One container of a pod. Probes and lifecycle hooks stay raw."""

    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    env: list[EnvVar] = []
    env_from: list[EnvFrom] = []
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: list[VolumeMount] = []
    ports: list[ContainerPort] = []
    image_pull_policy: str = ""
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    restart_policy: str = ""
    restart_policy_rules: list[dict[str, Any]] = []
    security_context: SecurityContext = SecurityContext()
    readiness_probe: dict[str, Any] | None = None
    liveness_probe: dict[str, Any] | None = None
    startup_probe: dict[str, Any] | None = None
    lifecycle: dict[str, Any] | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class Toleration(Wire, frozen=True, kw_only=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class WorkloadReference(Wire, frozen=True, kw_only=True):
    """Which pod group of which Workload a pod belongs to (``scheduling.k8s.io/v1alpha1``)."""

    name: str
    pod_group: str
    pod_group_replica_key: str = ""


DEFAULT_SCHEDULER = "default-scheduler"
"""``schedulerName`` of pods that name none."""
NEVER_PREEMPTS = "Never"
"""``preemptionPolicy`` of pods that make nobody give way; an empty one is ``PreemptLowerPriority``."""


class PodResourceClaim(Wire, frozen=True, kw_only=True):
    """A claim of a pod: in its spec by what it is made from, in its status by what it has become."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a pod. Affinity and spread constraints stay raw."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    ephemeral_containers: list[Container] = []
    volumes: list[Volume] = []
    restart_policy: str = "Always"
    node_name: str = ""
    node_selector: dict[str, str] = {}
    scheduler_name: str = DEFAULT_SCHEDULER
    scheduling_gates: list[dict[str, str]] = []
    readiness_gates: list[dict[str, str]] = []
    workload_ref: WorkloadReference | None = None
    scheduling_group: dict[str, str] = {}
    tolerations: list[Toleration] = []
    affinity: dict[str, Any] | None = None
    topology_spread_constraints: list[dict[str, Any]] = []
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    dns_policy: str = "ClusterFirst"
    dns_config: dict[str, Any] | None = None
    host_aliases: list[dict[str, Any]] = []
    hostname_override: str | None = None
    set_hostname_as_fqdn: bool = msgspec.field(default=False, name="setHostnameAsFQDN")
    runtime_class_name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    resource_claims: list[PodResourceClaim] = []
    overhead: dict[str, str | int | float] = {}
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    enable_service_links: bool = True
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    security_context: SecurityContext = SecurityContext()


def host_ports(spec: PodSpec) -> list[tuple[str, int, str]]:
    """Return protocol, number and address, empty for all, of the ports that a pod takes of its node."""
    return [
        (port.protocol, port.host_port or port.container_port, port.host_ip.removeprefix("0.0.0.0"))
        for container in spec.containers
        for port in container.ports
        if port.host_port or spec.host_network
    ]


def all_containers(spec: PodSpec) -> list[Container]:
    """Return every container of a pod, also those that were added to it."""
    return [*spec.init_containers, *spec.containers, *spec.ephemeral_containers]


class ContainerStateRunning(Wire, frozen=True, kw_only=True):
    """A container that runs."""

    started_at: str | None = None


class ContainerStateTerminated(Wire, frozen=True, kw_only=True):
    """A container that has ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerStateWaiting(Wire, frozen=True, kw_only=True):
    """A container that cannot start yet."""

    reason: str = ""
    message: str = ""


class ContainerState(Wire, frozen=True, kw_only=True):
    """At most one is set."""

    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None
    waiting: ContainerStateWaiting | None = None


class ContainerStatus(Wire, frozen=True, kw_only=True):
    """What became of one container."""

    name: str
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Wire, frozen=True, kw_only=True):
    """``status`` of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")
    start_time: str | None = None
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    ephemeral_container_statuses: list[ContainerStatus] = []
    resource_claim_statuses: list[PodResourceClaim] = []


REFUSALS = (
    "OutOf", "UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "NodeShutdown", "TopologyAffinityError",
    "Preempting",
)  # fmt: skip
"""Reasons, or their beginnings, of pods that their kubelet did not take or keep: the node was not as the
scheduler saw it. Source: pkg/kubelet (lifecycle/predicate.go, cm, nodeshutdown, preemption)."""


class Pod(Wire, frozen=True, kw_only=True):
    """A pod, as far as Gangline reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        """Whether the phase is final."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_refused(self) -> bool:
        """Whether its node refused it after the binding, which is no failure of the program."""
        return self.status.phase == "Failed" and self.status.reason.startswith(REFUSALS)


class Taint(Wire, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: str = ""


class NodeSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(Wire, frozen=True, kw_only=True):
    """``status`` of a node; quantities as written."""

    capacity: dict[str, str | int] = {}
    allocatable: dict[str, str | int] = {}
    conditions: list[Condition] = []
    addresses: list[dict[str, str]] = []
    daemon_endpoints: dict[str, dict[str, int]] = {}


class Node(Wire, frozen=True, kw_only=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether the condition Ready is True."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)


class LabelSelector(Wire, frozen=True, kw_only=True):
    """A selector by labels; expressions stay raw."""

    match_labels: dict[str, str] = {}
    match_expressions: list[dict[str, Any]] = []


class JobSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a batch/v1 Job; the template stays raw, for it is passed on."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    selector: LabelSelector | None = None
    pod_replacement_policy: str = ""
    template: dict[str, Any] = {}


class JobStatus(Wire, frozen=True, kw_only=True):
    """``status`` of a batch/v1 Job."""

    conditions: list[Condition] = []
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    uncounted_terminated_pods: dict[str, list[str]] = {}


class Job(Wire, frozen=True, kw_only=True):
    """A batch/v1 Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ServiceSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a Service; ports stay raw."""

    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    type: str = "ClusterIP"
    selector: dict[str, str] = {}
    ports: list[dict[str, Any]] = []
    publish_not_ready_addresses: bool = False
    external_name: str = ""
    session_affinity: str = "None"


class Service(Wire, frozen=True, kw_only=True):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class EndpointSlice(Wire, frozen=True, kw_only=True):
    """Where some of the pods of a Service are reached; endpoints and ports stay raw."""

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = "IPv4"
    endpoints: list[dict[str, Any]] | None = None
    ports: list[dict[str, Any]] | None = None


class ConfigMap(Wire, frozen=True, kw_only=True):
    """A ConfigMap; ``binary_data`` is base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class Secret(Wire, frozen=True, kw_only=True):
    """A Secret; ``data`` is base64."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = "Opaque"
    data: dict[str, str] = {}


class AnyObject(Wire, frozen=True, kw_only=True):
    """Any object, read for its metadata only."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
