"""The kinds that Gangline talks about: where each one lives in the API."""

from __future__ import annotations

import msgspec


class Resource(msgspec.Struct, frozen=True, order=True):
    """Where one kind lives: ``/api/v1`` for the empty group, else ``/apis/GROUP/VERSION``.

    Attributes:
        group: API group, empty for the core.
        version: API version.
        plural: the path segment.
        kind: the kind as manifests spell it.
        namespaced: whether objects live in a namespace.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``v1`` or ``GROUP/VERSION``, as in ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """Path of the group and version, without a slash at the end."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, an object or a subresource.

        ``namespace=None`` with a namespaced kind is the collection over all namespaces.
        """
        parts = [self.root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS = Resource("", "v1", "events", "Event")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
JOBS = Resource("batch", "v1", "jobs", "Job")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
LEADER_WORKER_SETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
REPLICATION_CONTROLLERS = Resource("", "v1", "replicationcontrollers", "ReplicationController")
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
HORIZONTAL_POD_AUTOSCALERS = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
HORIZONTAL_POD_AUTOSCALERS_V1 = Resource(
    "autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SELF_SUBJECT_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
MPIJOBS = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
MPIJOB_VERSIONS: tuple[Resource, ...] = (
    MPIJOBS,
    Resource("kubeflow.org", "v1", "mpijobs", "MPIJob"),
    Resource("kubeflow.org", "v1alpha2", "mpijobs", "MPIJob"),
    Resource("kubeflow.org", "v1alpha1", "mpijobs", "MPIJob"),
)
"""The same objects in every version that is served; the first is the one they are stored in."""
PYTORCHJOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
TFJOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
TRAINJOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
CLUSTER_TRAINING_RUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
TRAINING_RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime")
RUNTIMES: tuple[Resource, ...] = (CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES)
TRAINING_JOBS: tuple[Resource, ...] = (PYTORCHJOBS, TFJOBS, TRAINJOBS)
TFJOB_VERSIONS: tuple[Resource, ...] = (TFJOBS, Resource("kubeflow.org", "v1beta2", "tfjobs", "TFJob"))
JOB_RESOURCES: tuple[Resource, ...] = (*MPIJOB_VERSIONS, PYTORCHJOBS, *TFJOB_VERSIONS, TRAINJOBS)
"""The kinds that the operator runs, in every version that is served."""
OLD_VERSIONS: tuple[Resource, ...] = (*MPIJOB_VERSIONS[1:], *TFJOB_VERSIONS[1:])
"""What is served for old files, and stored in another version."""

WRITTEN_VERSION_ANNOTATION = "gangline.dev/written-version"
"""On a job: the ``apiVersion`` by whose rules it was written. It travels with the object where somebody
copies it through another version."""

SCHEDULER_PLUGINS_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
KUBERNETES_POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
KUBERNETES_POD_GROUPS_V1ALPHA2 = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
COMPOSITE_POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha3", "compositepodgroups", "CompositePodGroup")
WORKLOADS = Resource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")
VOLCANO_QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)

BUILT_IN: tuple[Resource, ...] = (
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    ENDPOINTS,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    EVENTS,
    ENDPOINT_SLICES,
    JOBS,
    LEASES,
    PRIORITY_CLASSES,
    CRDS,
)
"""Kinds that every Kubernetes has and the one-machine cluster serves."""
