"""Columns and rows of the built-in kinds, as ``kubectl get`` shows them.

A kind is one entry in ``KIND_TABLES``: its columns, written ``NAME`` or ``NAME:type`` with a leading ``+``
for those of ``-o wide``, and a function that returns the cells of one object in the same order.
Source: the printers of kube-apiserver (pkg/printers/internalversion).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gangline.cluster.server.tables.pod_columns import NONE, age, pod_cells
from gangline.cluster.server.wire.conversion import convert
from gangline.cluster.server.wire.selectors import selector_text
from gangline.units import format_age

Cells = Callable[[dict[str, Any], datetime], list[Any]]
Cell = Callable[[dict[str, Any], datetime], str]
_LISTED_MAX = 3
"""Addresses shown in one cell before ``+ N more...``."""


@dataclass(frozen=True, slots=True)
class KindTable:
    """How one kind is shown.

    Attributes:
        columns: column definitions in wire form.
        cells: returns the cells of one object, in the order of the columns.
    """

    columns: tuple[dict[str, Any], ...]
    cells: Cells


def _columns(text: str) -> tuple[dict[str, Any], ...]:
    definitions = []
    for word in text.split("|"):
        title, _, type_ = word.strip().lstrip("+").partition(":")
        definitions.append(
            {
                "name": title,
                "type": type_ or "string",
                "format": "name" if title == "Name" and not word.strip().startswith("+") else "",
                "description": f"{title} of the object.",
                "priority": 1 if word.strip().startswith("+") else 0,
            }
        )
    return tuple(definitions)


def _meta(obj: dict[str, Any]) -> dict[str, Any]:
    return obj.get("metadata") or {}


def _name(obj: dict[str, Any]) -> str:
    return str(_meta(obj).get("name", ""))


def _age(obj: dict[str, Any], now: datetime) -> str:
    return age(_meta(obj).get("creationTimestamp"), now)


def _job(job: dict[str, Any], now: datetime) -> list[Any]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    succeeded = status.get("succeeded") or 0
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    elif (spec.get("parallelism") or 0) > 1:
        completions = f"{succeeded}/1 of {spec['parallelism']}"
    else:
        completions = f"{succeeded}/1"
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = pod.get("containers") or []
    return [
        _name(job),
        job_status(job),
        completions,
        _duration(status, now),
        _age(job, now),
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        _selector(spec.get("selector")),
    ]


def job_status(job: dict[str, Any]) -> str:
    """Return the STATUS column of a job: the first of its conditions that counts, else ``Running``."""
    true = {
        entry.get("type")
        for entry in (job.get("status") or {}).get("conditions") or []
        if entry.get("status") == "True"
    }
    for condition in ("Complete", "Failed"):
        if condition in true:
            return condition
    if _meta(job).get("deletionTimestamp"):
        return "Terminating"
    return next((c for c in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if c in true), "Running")


def _duration(status: dict[str, Any], now: datetime) -> str:
    from gangline.clock import parse_time

    if not status.get("startTime"):
        return ""
    end = parse_time(status["completionTime"]) if status.get("completionTime") else now
    return format_age((end - parse_time(status["startTime"])).total_seconds())


def _selector(selector: dict[str, Any] | None) -> str:
    return selector_text(selector) or NONE


def _node(node: dict[str, Any], now: datetime) -> list[Any]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    info = status.get("nodeInfo") or {}
    ready = next((entry for entry in status.get("conditions") or [] if entry.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    addresses = {entry.get("type"): entry.get("address") for entry in reversed(status.get("addresses") or [])}
    roles = set()
    for key, value in (_meta(node).get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/") and key.rpartition("/")[2]:
            roles.add(key.rpartition("/")[2])
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return [
        _name(node),
        state,
        ",".join(sorted(roles)) or NONE,
        _age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _service(service: dict[str, Any], now: datetime) -> list[Any]:
    spec = service.get("spec") or {}
    kind = spec.get("type") or "ClusterIP"
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    external = ",".join(spec.get("externalIPs") or [])
    if kind == "ExternalName":
        external = spec.get("externalName", "")
    elif kind == "LoadBalancer":
        shown = [entry.get("ip") or entry.get("hostname") or "" for entry in ingress]
        external = ",".join([*shown, *(spec.get("externalIPs") or [])]) or "<pending>"
    ports = []
    for port in spec.get("ports") or []:
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    address = next(iter(spec.get("clusterIPs") or []), spec.get("clusterIP"))
    return [
        _name(service),
        kind,
        address or NONE,
        external or NONE,
        ",".join(ports) or NONE,
        _age(service, now),
        _selector(spec.get("selector")),
    ]


def _event(event: dict[str, Any], now: datetime) -> list[Any]:
    involved, source, series = (event.get(key) or {} for key in ("involvedObject", "source", "series"))
    first = age(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = age(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    count = event.get("count") or 1
    if series:
        last, count = age(series.get("lastObservedTime"), now), series.get("count") or 1
    component = source.get("component") or event.get("reportingComponent") or ""
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        f"{involved.get('kind', '').lower()}/{involved.get('name', '')}",
        involved.get("fieldPath", ""),
        ", ".join(part for part in (component, source.get("host")) if part),
        event.get("message", "").strip(),
        first,
        count,
        _name(event),
    ]


def _listed(items: list[str]) -> str:
    shown = ",".join(items[:_LISTED_MAX])
    more = len(items) - _LISTED_MAX
    return f"{shown} + {more} more..." if more > 0 else shown


def _endpoints(endpoints: dict[str, Any], now: datetime) -> list[Any]:
    shown = []
    for subset in endpoints.get("subsets") or []:
        ports = subset.get("ports") or []
        for address in subset.get("addresses") or []:
            ip = address.get("ip", "")
            shown += [f"{ip}:{port.get('port')}" for port in ports] if ports else [ip]
    return [_name(endpoints), _listed(shown) or NONE, _age(endpoints, now)]


def _endpoint_slice(item: dict[str, Any], now: datetime) -> list[Any]:
    ports = [str(port["port"]) if port.get("port") else "*" for port in item.get("ports") or []]
    addresses = [address for entry in item.get("endpoints") or [] for address in entry.get("addresses") or []]
    return [
        _name(item),
        item.get("addressType", ""),
        _listed(ports) or "<unset>",
        _listed(addresses) or "<unset>",
        _age(item, now),
    ]


def _count(obj: dict[str, Any], *keys: str) -> int:
    return sum(len(obj.get(key) or ()) for key in keys)


def _priority_class(item: dict[str, Any], now: datetime) -> list[Any]:
    return [
        _name(item),
        item.get("value", 0),
        bool(item.get("globalDefault")),
        _age(item, now),
        item.get("preemptionPolicy") or "PreemptLowerPriority",
    ]


_EVENT_COLUMNS = _columns("Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name")


def _cells(*titles: Cell | str) -> Cells:
    """Return a row of paths below the object, numbers 0 where absent, and of what functions find."""

    def row(obj: dict[str, Any], now: datetime) -> list[Any]:
        return [title(obj, now) if callable(title) else _at(obj, title) for title in titles]

    return row


def _at(obj: dict[str, Any], path: str) -> Any:
    found: Any = obj
    for key in path.split("."):
        found = (found or {}).get(key)
    return 0 if found is None and path.startswith("status.") else found


def _pods_of(field: str) -> Cell:
    """Return the containers' names or images of a template, or its selector."""

    def cell(obj: dict[str, Any], _: datetime) -> str:
        spec = obj.get("spec") or {}
        if field == "selector":
            return _selector(spec.get("selector"))
        containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
        return ",".join(container.get(field, "") for container in containers)

    return cell


_WIDE: tuple[Cell, ...] = (_pods_of("name"), _pods_of("image"), _pods_of("selector"))
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _ready(obj: dict[str, Any], _: datetime) -> str:
    return f"{_at(obj, 'status.readyReplicas')}/{_at(obj, 'spec.replicas') or 0}"


def _node_selector(obj: dict[str, Any], _: datetime) -> str:
    found = _at(obj, "spec.template.spec.nodeSelector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(found.items())) or NONE


def _modes(obj: dict[str, Any], _: datetime) -> str:
    found = (obj.get("status") or {}).get("accessModes") or _at(obj, "spec.accessModes")
    if obj.get("kind") == "PersistentVolumeClaim" and not _at(obj, "spec.volumeName"):
        return ""
    return ",".join(_MODES.get(mode, mode) for mode in found or ())


def _phase(obj: dict[str, Any], _: datetime) -> str:
    return "Terminating" if _meta(obj).get("deletionTimestamp") else (_at(obj, "status.phase") or "")


def _claim(obj: dict[str, Any], now: datetime) -> list[Any]:
    capacity = (_at(obj, "status.capacity") or {}).get("storage", "")
    names = (_at(obj, "spec.volumeName") or "", capacity)
    rest = (_at(obj, "spec.storageClassName") or "", "<unset>", _age(obj, now), _at(obj, "spec.volumeMode"))
    return [_name(obj), _phase(obj, now), *names, _modes(obj, now), *rest]


def _volume(obj: dict[str, Any], now: datetime) -> list[Any]:
    claim = _at(obj, "spec.claimRef") or {}
    return [
        _name(obj),
        (_at(obj, "spec.capacity") or {}).get("storage", ""),
        _modes(obj, now),
        _at(obj, "spec.persistentVolumeReclaimPolicy"),
        _phase(obj, now),
        f"{claim['namespace']}/{claim['name']}" if claim else "",
        _at(obj, "spec.storageClassName") or "",
        "<unset>",
        (obj.get("status") or {}).get("reason", ""),
        _age(obj, now),
        _at(obj, "spec.volumeMode"),
    ]


def _storage_class(obj: dict[str, Any], now: datetime) -> list[Any]:
    is_default = (_meta(obj).get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class")
    name = f"{_name(obj)} (default)" if is_default == "true" else _name(obj)
    values = (obj.get(key) or "" for key in ("provisioner", "reclaimPolicy", "volumeBindingMode"))
    return [name, *values, bool(obj.get("allowVolumeExpansion")), _age(obj, now)]


def _controller_of(obj: dict[str, Any], _: datetime) -> str:
    owners = _meta(obj).get("ownerReferences") or []
    found = next((owner for owner in owners if owner.get("controller")), None)
    return f"{found['kind'].lower()}.apps/{found['name']}" if found else NONE


_REPLICAS = KindTable(
    _columns("Name|Desired:integer|Current:integer|Ready:integer|Age|+Containers|+Images|+Selector"),
    _cells("metadata.name", "spec.replicas", "status.replicas", "status.readyReplicas", _age, *_WIDE),
)

KIND_TABLES: dict[tuple[str, str], KindTable] = {
    ("", "pods"): KindTable(
        _columns("Name|Ready|Status|Restarts|Age|+IP|+Node|+Nominated Node|+Readiness Gates"),
        pod_cells,
    ),
    ("batch", "jobs"): KindTable(
        _columns("Name|Status|Completions|Duration|Age|+Containers|+Images|+Selector"), _job
    ),
    ("", "nodes"): KindTable(
        _columns(
            "Name|Status|Roles|Age|Version|+Internal-IP|+External-IP|+OS-Image|+Kernel-Version|+Container-Runtime"
        ),
        _node,
    ),
    ("", "services"): KindTable(_columns("Name|Type|Cluster-IP|External-IP|Port(s)|Age|+Selector"), _service),
    ("", "events"): KindTable(_EVENT_COLUMNS, _event),
    ("events.k8s.io", "events"): KindTable(
        _EVENT_COLUMNS, lambda obj, now: _event(convert({**obj, "kind": "Event"}, "v1"), now)
    ),
    ("", "namespaces"): KindTable(
        _columns("Name|Status|Age"),
        lambda obj, now: [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj, now)],
    ),
    ("", "configmaps"): KindTable(
        _columns("Name|Data|Age"),
        lambda obj, now: [_name(obj), _count(obj, "data", "binaryData"), _age(obj, now)],
    ),
    ("", "secrets"): KindTable(
        _columns("Name|Type|Data|Age"),
        lambda obj, now: [_name(obj), obj.get("type", ""), _count(obj, "data"), _age(obj, now)],
    ),
    ("", "serviceaccounts"): KindTable(_columns("Name|Age"), lambda obj, now: [_name(obj), _age(obj, now)]),
    ("", "endpoints"): KindTable(_columns("Name|Endpoints|Age"), _endpoints),
    ("discovery.k8s.io", "endpointslices"): KindTable(
        _columns("Name|AddressType|Ports|Endpoints|Age"), _endpoint_slice
    ),
    ("coordination.k8s.io", "leases"): KindTable(
        _columns("Name|Holder|Age"),
        lambda obj, now: [_name(obj), (obj.get("spec") or {}).get("holderIdentity", ""), _age(obj, now)],
    ),
    ("scheduling.k8s.io", "priorityclasses"): KindTable(
        _columns("Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy"), _priority_class
    ),
    ("apps", "deployments"): KindTable(
        _columns("Name|Ready|Up-to-date|Available|Age|+Containers|+Images|+Selector"),
        _cells("metadata.name", _ready, "status.updatedReplicas", "status.availableReplicas", _age, *_WIDE),
    ),
    ("apps", "replicasets"): _REPLICAS,
    ("", "replicationcontrollers"): _REPLICAS,
    ("apps", "statefulsets"): KindTable(
        _columns("Name|Ready|Age|+Containers|+Images"), _cells("metadata.name", _ready, _age, *_WIDE[:2])
    ),
    ("apps", "daemonsets"): KindTable(
        _columns(
            "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer"
            "|Node Selector|Age|+Containers|+Images|+Selector"
        ),
        _cells(
            "metadata.name",
            "status.desiredNumberScheduled",
            "status.currentNumberScheduled",
            "status.numberReady",
            "status.updatedNumberScheduled",
            "status.numberAvailable",
            _node_selector,
            _age,
            *_WIDE,
        ),
    ),
    ("apps", "controllerrevisions"): KindTable(
        _columns("Name|Controller|Revision|Age"),
        _cells("metadata.name", _controller_of, "revision", _age),
    ),
    ("", "persistentvolumeclaims"): KindTable(
        _columns(
            "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|+VolumeMode"
        ),
        _claim,
    ),
    ("", "persistentvolumes"): KindTable(
        _columns(
            "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason"
            "|Age|+VolumeMode"
        ),
        _volume,
    ),
    ("storage.k8s.io", "storageclasses"): KindTable(
        _columns("Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age"),
        _storage_class,
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"): KindTable(
        _columns("Name|Created At:date"),
        lambda obj, _: [_name(obj), _meta(obj).get("creationTimestamp", "")],
    ),
}
"""Kinds with columns of their own, by group and plural."""
