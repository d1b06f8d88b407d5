"""The objects that Gangline consists of on a cluster. Values in, objects out.

``gangline install`` applies them, and tools/update_manifests.py writes them as the files of deploy/ and as a
chart, so that all ways to install bring the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec
import yaml

from gangline import __version__
from gangline.api.crds import crds, gang_crds
from gangline.api.pod_group import GANGLINE_SCHEDULER
from gangline.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from gangline.kube.config import SERVICE_ACCOUNT
from gangline.workloads.device_class import DEVICE_CLASS

Obj = dict[str, Any]

SYSTEM_NAMESPACE: Final = "gangline-system"
NODE_NAMESPACE: Final = "kube-system"
"""Of programs on nodes: pods of the critical classes may be there without a quota."""
KUBELET_FOLDER: Final = "/var/lib/kubelet"
PART_OF: Final = {"app.kubernetes.io/part-of": "gangline"}
"""The label by which an installation's objects are found again."""

IMAGES: Final = {
    "operator": "gangline",
    "scheduler": "gangline-scheduler",
    "device-plugin": "gangline-device-plugin",
    "page": "gangline-page",
}
"""The image of each service: the first has what all need, the others numpy, gRPC or a web server besides."""

REPLICAS: Final = 2
"""One works, the other stands by."""

USER: Final = 65532
"""Nobody's number on Debian, and the user of the images."""

HEALTH_PORT: Final = 8080
METRICS_PORT: Final = 8081
STATUS_PORT: Final = 10443
"""Where pods of TrainJobs tell how far they are; upstream's."""
_SCRAPED: Final = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
STARTED_WITHIN_S: Final = 120
"""So long a container may take until it answers, on a node that reads the image for the first time."""

_OPERATOR: Final = "gangline-operator"
_OWN_NAMESPACE: Final = "$(POD_NAMESPACE)"
"""A kubelet fills it in, so that a change of the namespace by kustomize reaches the arguments."""

CRITICAL_PODS: Final = 100
"""Far above what is started: room is not what the quota is for."""

_REQUESTS: Final[dict[str, Obj]] = {
    # Operator: 43 MiB idle, 78 to 96 MiB while it makes the pods of 500 jobs, 2.2 s of a processor.
    # Scheduler: 55 MiB idle.
    "operator": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    "scheduler": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
    "device-plugin": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    # Each user's jobs and pods are kept, as no two may see the same.
    "page": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
}
_CLUSTER_WIDE: Final = frozenset({"customresourcedefinitions", "priorityclasses", "tokenreviews"})
"""What the operator asks outside namespaces. Without, it makes no gangs and hears no pods."""


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What is installed, and where.

    Attributes:
        namespace: of the services.
        is_namespaced: the operator alone, which sees this namespace alone and has no right outside it; the
            namespace is its users' and none of the objects.
        has_operator: the job operator is part of it.
        has_scheduler: the gang scheduler is part of it, and the operator makes gangs for it.
        image_prefix: registry and folder of the images; none where nodes have them already.
        digests: by the images' names, of those that are not to be taken by their tag alone.
    """

    namespace: str = SYSTEM_NAMESPACE
    is_namespaced: bool = False
    has_operator: bool = True
    has_scheduler: bool = True
    image_prefix: str = ""
    digests: Mapping[str, str] = {}

    def image(self, part: str) -> str:
        """Return what a service's containers ask for: ``PREFIX/gangline:VERSION@sha256:...``."""
        name = IMAGES[part]
        tagged = "/".join(filter(None, [self.image_prefix, f"{name}:{__version__}"]))
        return f"{tagged}@{self.digests[name]}" if name in self.digests else tagged


@cache
def rights() -> dict[str, list[Obj]]:
    """Return the rules of each role: of services, of users of jobs, and of a lease's holders."""
    text = (resources.files(__package__) / "rights.yaml").read_text()
    found: dict[str, list[Obj]] = yaml.safe_load(text)
    return found


def definitions(installation: Installation) -> list[Obj]:
    """Return the custom resource definitions that it works by."""
    gangs = [crd for crd in gang_crds() if crd["metadata"]["name"] != _name_of(VOLCANO_POD_GROUPS)]
    return [*crds(), *(gangs if installation.has_scheduler else [])]


def _name_of(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"


POD_LOGS = "/var/log/pods"


def objects(installation: Installation) -> list[Obj]:
    """Return all objects but the definitions, in the order in which they are to be made."""
    if installation.is_namespaced:
        return _service("operator", installation, [f"--namespace={_OWN_NAMESPACE}"])
    found = [
        _object(NAMESPACES, installation.namespace, labels={}),
        _critical_pods(installation.namespace),
    ]
    if installation.has_operator:
        gangs = [f"--gang-scheduling={GANGLINE_SCHEDULER}"] if installation.has_scheduler else []
        told = [f"--status-port={STATUS_PORT}", f"--status-host={_OPERATOR}.{_OWN_NAMESPACE}.svc"]
        found += [*_service("operator", installation, [*gangs, *told]), _status_service(installation)]
        found += [_users_role("edit", "admin", "edit"), _users_role("view", "view")]
    if installation.has_scheduler:
        found += _service("scheduler", installation, [])
    return found


def device_plugin() -> list[Obj]:
    """Return the DaemonSet that serves the GPUs of labelled nodes to kubelets, with what it may do."""
    name = "gangline-device-plugin"
    folders = {
        "device-plugins": f"{KUBELET_FOLDER}/device-plugins",
        "pod-resources": f"{KUBELET_FOLDER}/pod-resources",
    }
    daemons = _daemons(name, "device-plugin", folders, "Directory")
    pod = daemons["spec"]["template"]["spec"]
    # Read alone: trainings tell in their logs when they saved their state.
    pod["volumes"].append({"name": "pod-logs", "hostPath": {"path": POD_LOGS, "type": "DirectoryOrCreate"}})
    mount = {"name": "pod-logs", "mountPath": POD_LOGS, "readOnly": True}
    container = pod["containers"][0]
    container["volumeMounts"].append(mount)
    container["command"] += ["--listen=0.0.0.0", f"--metrics-port={METRICS_PORT}"]
    container["ports"] = [{"name": "metrics", "containerPort": METRICS_PORT}]
    daemons["spec"]["template"]["metadata"]["annotations"] = _SCRAPED
    return [*_account(name, rights()["device-plugin"]), daemons]


def _daemons(name: str, part: str, folders: dict[str, str], kind: str) -> Obj:
    labels = {"app": name}
    gpu_nodes = {"matchExpressions": [{"key": "openshift.com/gpu-accelerator", "operator": "Exists"}]}
    container = {
        "name": part,
        "image": Installation().image("device-plugin"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["gangline", "device-plugin"],
        "args": [],
        "env": [
            _of_the_pod("NODE_NAME", "spec.nodeName"),
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        ],
        "resources": _REQUESTS["device-plugin"],
        # The folders are root's.
        "securityContext": {"runAsUser": 0, **_CONFINED},
        "volumeMounts": [{"name": key, "mountPath": path} for key, path in folders.items()],
    }
    pod = {
        "priorityClassName": "system-node-critical",
        "serviceAccountName": name,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [gpu_nodes]}
            }
        },
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": key, "hostPath": {"path": path, "type": kind}} for key, path in folders.items()],
    }
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return _object(DAEMON_SETS, name, NODE_NAMESPACE, labels=labels, spec=spec)


def _account(name: str, rules: list[Obj]) -> list[Obj]:
    """Return the account of a node's program with its rights."""
    labels = {"app": name}
    role = {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": name}
    subjects = [{"kind": SERVICE_ACCOUNTS.kind, "name": name, "namespace": NODE_NAMESPACE}]
    return [
        _object(SERVICE_ACCOUNTS, name, NODE_NAMESPACE, labels=labels),
        _object(CLUSTER_ROLES, name, labels=labels, rules=rules),
        _object(CLUSTER_ROLE_BINDINGS, name, labels=labels, roleRef=role, subjects=subjects),
    ]


def dra_driver() -> list[Obj]:
    """Return the device class, and the DaemonSet that serves GPUs to resource claims with what it may do."""
    name = "gangline-dra"
    folders = {"plugins": f"{KUBELET_FOLDER}/plugins", "registry": f"{KUBELET_FOLDER}/plugins_registry"}
    folders["cdi"] = "/var/run/cdi"
    daemons = _daemons(name, "dra", folders, "DirectoryOrCreate")
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    container["command"] = [*container["command"], "--dra"]
    return [DEVICE_CLASS, *_account(name, rights()["dra"]), daemons]


def page(installation: Installation) -> list[Obj]:
    """Return the page's Deployment and Service, and an account that may do nothing and has no token.

    What it needs of the cluster is the certificate of the server: its users bring the rights. Its namespace
    is its own, so that to delete what was applied takes nothing else.
    """
    name = namespace = "gangline-page"
    labels = {"app": name}
    # As a browser asks for it through a port that was forwarded.
    asked = {"path": "/", "port": "page", "httpHeaders": [{"name": "Host", "value": "localhost"}]}
    container = {
        "name": "page",
        "image": installation.image("page"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["gangline", "page-server"],
        "args": ["--listen=0.0.0.0", f"--port={HEALTH_PORT}"],
        "ports": [{"name": "page", "containerPort": HEALTH_PORT}],
        "startupProbe": {"httpGet": asked, "periodSeconds": 1, "failureThreshold": STARTED_WITHIN_S},
        "livenessProbe": {"httpGet": asked, "periodSeconds": 10, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": asked, "periodSeconds": 2, "timeoutSeconds": 5},
        "resources": _REQUESTS["page"],
        "securityContext": _CONFINED,
        "volumeMounts": [{"name": "authority", "mountPath": str(SERVICE_ACCOUNT), "readOnly": True}],
    }
    pod = {
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "securityContext": _NOBODY,
        "containers": [container],
        "volumes": [{"name": "authority", "configMap": {"name": "kube-root-ca.crt"}}],
    }
    spec = {
        "replicas": 1,  # tokens lie in the memory of one process
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    port = {"name": "page", "port": 80, "targetPort": "page", "protocol": "TCP"}
    return [
        _object(NAMESPACES, namespace, labels={}),
        _object(SERVICE_ACCOUNTS, name, namespace, labels=labels, automountServiceAccountToken=False),
        _object(DEPLOYMENTS, name, namespace, labels=labels, spec=spec),
        _object(SERVICES, name, namespace, labels=labels, spec={"selector": labels, "ports": [port]}),
    ]


def _object(resource: Resource, name: str, namespace: str = "", *, labels: Obj, **rest: Any) -> Obj:
    place = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **place, "labels": {**labels, **PART_OF}}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **rest}


def _hears_pods(part: str, installation: Installation) -> bool:
    """Whether pods may tell a service how far they are: who they are, it asks outside its namespace."""
    return part == "operator" and not installation.is_namespaced


def _status_service(installation: Installation) -> Obj:
    """Return the way to the operators for pods that tell how far they are; each of them answers."""
    labels = {"app": _OPERATOR}
    port = {"name": "status", "port": STATUS_PORT, "targetPort": "status", "protocol": "TCP"}
    spec = {"selector": labels, "ports": [port]}
    return _object(SERVICES, _OPERATOR, installation.namespace, labels=labels, spec=spec)


def _critical_pods(namespace: str) -> Obj:
    """Return what allows pods of a critical priority class, where a cluster does so by quotas alone (GKE)."""
    scope = {
        "scopeName": "PriorityClass",
        "operator": "In",
        "values": ["system-cluster-critical"],
    }
    spec = {"hard": {"pods": str(CRITICAL_PODS)}, "scopeSelector": {"matchExpressions": [scope]}}
    return _object(RESOURCE_QUOTAS, "gangline-critical-pods", namespace, labels={}, spec=spec)


def _users_role(name: str, *into: str) -> Obj:
    """Return what users may do with MPIJobs; added to the cluster's own roles of these names."""
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in into}
    rules = rights()[f"mpijobs-{name}"]
    return _object(CLUSTER_ROLES, f"gangline-mpijobs-{name}", labels=labels, rules=rules)


def _service(part: str, installation: Installation, words: list[str]) -> list[Obj]:
    """Return one service: its account, what that may do, and its pods."""
    name, namespace = f"gangline-{part}", installation.namespace
    labels = {"app": name}
    subjects = [{"kind": SERVICE_ACCOUNTS.kind, "name": name, "namespace": namespace}]

    def bound(roles: Resource, bindings: Resource, role: str, rules: list[Obj]) -> list[Obj]:
        place = namespace if roles.namespaced else ""
        reference = {"apiGroup": roles.group, "kind": roles.kind, "name": role}
        return [
            _object(roles, role, place, labels=labels, rules=rules),
            _object(bindings, role, place, labels=labels, roleRef=reference, subjects=subjects),
        ]

    rules = rights()[part]
    if installation.is_namespaced:
        inside = [rule for rule in rules if _CLUSTER_WIDE.isdisjoint(rule["resources"])]
        may = bound(ROLES, ROLE_BINDINGS, name, inside)
    else:
        may = bound(CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, name, rules)
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    return [
        _object(SERVICE_ACCOUNTS, name, namespace, labels=labels),
        *may,
        *bound(ROLES, ROLE_BINDINGS, f"{name}-lease", rights()["lease"]),
        _object(POD_DISRUPTION_BUDGETS, name, namespace, labels=labels, spec=budget),
        _deployment(part, installation, words),
    ]


_FILES: Final = "files"
_CONFINED: Final[Obj] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_NOBODY: Final[Obj] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _deployment(part: str, installation: Installation, words: list[str]) -> Obj:
    name = f"gangline-{part}"
    labels = {"app": name}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    # Nothing starts without them: no job may push them off. A namespace's users may not say so.
    priority = {} if installation.is_namespaced else {"priorityClassName": "system-cluster-critical"}
    container = _container(part, installation.image(part), words)
    pod: Obj = {
        "serviceAccountName": name,
        **priority,
        "securityContext": _NOBODY,
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
            }
        },
        "containers": [container],
    }
    if _hears_pods(part, installation):
        # A certificate is read from files alone.
        pod |= {"volumes": [{"name": _FILES, "emptyDir": {"medium": "Memory"}}]}
        container["volumeMounts"] = [{"name": _FILES, "mountPath": "/tmp"}]
        container["ports"].append({"name": "status", "containerPort": STATUS_PORT})
    spec = {
        "replicas": REPLICAS,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": _SCRAPED}, "spec": pod},
    }
    return _object(DEPLOYMENTS, name, installation.namespace, labels=labels, spec=spec)


def _of_the_pod(name: str, path: str) -> Obj:
    """Return a variable with a field of the pod, and the version that servers fill in otherwise.

    A reference is owned as a whole: without it another's apply of the same object would be a conflict.
    """
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _container(part: str, image: str, words: list[str]) -> Obj:
    def asked(path: str, every_s: int, **rest: int) -> Obj:
        return {"httpGet": {"path": path, "port": "health"}, "periodSeconds": every_s, **rest}

    return {
        "name": part,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["gangline", part],
        "args": [
            "--leader-elect",
            "--listen=0.0.0.0",
            f"--health-port={HEALTH_PORT}",
            f"--metrics-port={METRICS_PORT}",
            f"--lock-namespace={_OWN_NAMESPACE}",
            *words,
        ],
        "env": [_of_the_pod("POD_NAMESPACE", "metadata.namespace")],
        "ports": [
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "startupProbe": asked("/healthz", 1, failureThreshold=STARTED_WITHIN_S),
        "livenessProbe": asked("/healthz", 10, timeoutSeconds=5),
        "readinessProbe": asked("/readyz", 2, timeoutSeconds=5),
        "resources": _REQUESTS[part],
        "securityContext": _CONFINED,
    }
