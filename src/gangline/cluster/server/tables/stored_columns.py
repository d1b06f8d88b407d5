"""Columns of the kinds that are stored only, as text: ``kubectl get`` shows them as elsewhere.

A line is ``GROUP/PLURAL: TITLE=CELL|...`` after the name; a leading ``+`` is a column of ``-o wide``,
``TITLE:type`` one that is no text. A cell is a path below the object, ``#path`` how many there are,
``@name`` a function of ``_FUNCTIONS``; ``?text`` stands where nothing is found, and lists are joined.
Source: the printers of kube-apiserver (pkg/printers/internalversion).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

from gangline.cluster.server.tables.pod_columns import NONE, age
from gangline.cluster.server.wire.selectors import selector_text

Obj = dict[str, Any]
Cell = Callable[[Obj, datetime], Any]

_LINES = """
/podtemplates: Containers=@names|Images=@images|Pod Labels=@pod labels
/resourcequotas: Request=@requests|Limit=@limits|Age=@age
admissionregistration.k8s.io/mutatingwebhookconfigurations: Webhooks:integer=#webhooks|Age=@age
admissionregistration.k8s.io/validatingwebhookconfigurations: Webhooks:integer=#webhooks|Age=@age
admissionregistration.k8s.io/validatingadmissionpolicies: Validations:integer=#spec.validations|ParamKind=spec.paramKind.kind?<unset>|Age=@age
admissionregistration.k8s.io/validatingadmissionpolicybindings: PolicyName=spec.policyName|ParamRef=spec.paramRef.name?<unset>|Age=@age
apiregistration.k8s.io/apiservices: Service=@service|Available=@available|Age=@age
autoscaling/horizontalpodautoscalers: Reference=@scaled|Targets=@targets|MinPods=spec.minReplicas?<unset>|MaxPods=spec.maxReplicas|Replicas=status.currentReplicas?0|Age=@age
batch/cronjobs: Schedule=spec.schedule|Timezone=spec.timeZone?<none>|Suspend:boolean=spec.suspend|Active:integer=#status.active|Last Schedule=@last schedule|Age=@age|+Containers=@names|+Images=@images|+Selector=@selector
certificates.k8s.io/certificatesigningrequests: Age=@age|SignerName=spec.signerName?<none>|Requestor=spec.username|RequestedDuration=spec.expirationSeconds?<none>|Condition=@certificate
flowcontrol.apiserver.k8s.io/flowschemas: PriorityLevel=spec.priorityLevelConfiguration.name|MatchingPrecedence=spec.matchingPrecedence|DistinguisherMethod=spec.distinguisherMethod.type?<none>|Age=@age|MissingPL=@dangling
flowcontrol.apiserver.k8s.io/prioritylevelconfigurations: Type=spec.type|NominalConcurrencyShares=spec.limited.nominalConcurrencyShares?<none>|Queues=spec.limited.limitResponse.queuing.queues?<none>|HandSize=spec.limited.limitResponse.queuing.handSize?<none>|QueueLengthLimit=spec.limited.limitResponse.queuing.queueLengthLimit?<none>|Age=@age
networking.k8s.io/ingressclasses: Controller=spec.controller|Parameters=spec.parameters.name?<none>|Age=@age
networking.k8s.io/ingresses: Class=spec.ingressClassName?<none>|Hosts=spec.rules.host?*|Address=@address|Ports=@ingress ports|Age=@age
networking.k8s.io/ipaddresses: ParentRef=@parent
networking.k8s.io/networkpolicies: Pod-Selector=@pod selector|Age=@age
networking.k8s.io/servicecidrs: CIDRs=spec.cidrs|Age=@age
node.k8s.io/runtimeclasses: Handler=handler|Age=@age
policy/poddisruptionbudgets: Min Available=spec.minAvailable?N/A|Max Unavailable=spec.maxUnavailable?N/A|Allowed Disruptions:integer=status.disruptionsAllowed?0|Age=@age
rbac.authorization.k8s.io/clusterrolebindings: Role=@role|Age=@age|+Users=@User|+Groups=@Group|+ServiceAccounts=@ServiceAccount
rbac.authorization.k8s.io/rolebindings: Role=@role|Age=@age|+Users=@User|+Groups=@Group|+ServiceAccounts=@ServiceAccount
resource.k8s.io/deviceclasses: Age=@age
resource.k8s.io/resourceclaims: State=@claim|Age=@age
resource.k8s.io/resourceclaimtemplates: Age=@age
resource.k8s.io/resourceslices: Node=spec.nodeName|Driver=spec.driver|Pool=spec.pool.name|Age=@age
storage.k8s.io/csidrivers: AttachRequired:boolean=spec.attachRequired|PodInfoOnMount:boolean=spec.podInfoOnMount|StorageCapacity:boolean=spec.storageCapacity|TokenRequests=spec.tokenRequests.audience?<unset>|RequiresRepublish:boolean=spec.requiresRepublish|Modes=spec.volumeLifecycleModes?<none>|Age=@age
storage.k8s.io/csinodes: Drivers:integer=#spec.drivers|Age=@age
storage.k8s.io/volumeattachments: Attacher=spec.attacher|PV=spec.source.persistentVolumeName|Node=spec.nodeName|Attached:boolean=status.attached|Age=@age
storage.k8s.io/volumeattributesclasses: DriverName=driverName|Age=@age
"""  # noqa: E501


@cache
def columns_of(group: str, plural: str) -> tuple[tuple[tuple[str, str, bool], ...], tuple[Cell, ...]] | None:
    """Return title, type and whether it is wide of each column after the name, and their cells; or None."""
    start = f"\n{group}/{plural}: "
    place = _LINES.find(start)
    if place < 0:
        return None
    line = _LINES[place + len(start) : _LINES.index("\n", place + 1)]
    columns, cells = [], []
    for part in line.split("|"):
        title, _, cell = part.partition("=")
        name, _, type_ = title.lstrip("+").partition(":")
        columns.append((name, type_ or "string", title.startswith("+")))
        cells.append(_FUNCTIONS[cell[1:]] if cell.startswith("@") else _path_cell(cell))
    return tuple(columns), tuple(cells)


def _path_cell(text: str) -> Cell:
    path, _, otherwise = text.partition("?")
    absent = int(otherwise) if otherwise.isdigit() else otherwise
    if path.startswith("#"):
        return lambda obj, _: len(_at(obj, path[1:]) or ())

    def cell(obj: Obj, _: datetime) -> Any:
        found = _at(obj, path)
        if isinstance(found, list):
            found = ",".join(str(item) for item in found if item is not None)
        return absent if found is None or found == "" else found

    return cell


def _at(obj: Any, path: str) -> Any:
    """Return what is at a path; below a list, what each of its items has there."""
    for key in path.split("."):
        if isinstance(obj, list):
            obj = [item.get(key) for item in obj if isinstance(item, dict)]
        else:
            obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def _containers(field: str) -> Cell:
    def cell(obj: Obj, _: datetime) -> str:
        job = _at(obj, "spec.jobTemplate.spec") or obj
        return ",".join(str(one.get(field, "")) for one in _at(job, "template.spec.containers") or ())

    return cell


def _quota(*, limits: bool) -> Cell:
    def cell(obj: Obj, _: datetime) -> str:
        hard, used = _at(obj, "status.hard") or {}, _at(obj, "status.used") or {}
        names = sorted(name for name in hard if name.startswith("limits.") is limits)
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return cell


def _subjects(kind: str) -> Cell:
    def cell(obj: Obj, _: datetime) -> str:
        found = [one for one in obj.get("subjects") or () if one.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{one.get('namespace', '')}/{one.get('name', '')}" for one in found)
        return ", ".join(one.get("name", "") for one in found)

    return cell


def _condition(obj: Obj, type_: str, absent: str) -> str:
    found = (one for one in _at(obj, "status.conditions") or () if one.get("type") == type_)
    return next((str(one.get("status", absent)) for one in found), absent)


def _certificate(obj: Obj, _: datetime) -> str:
    types = set(_at(obj, "status.conditions.type") or ())
    state = next((type_ for type_ in ("Denied", "Approved") if type_ in types), "Pending")
    state += ",Failed" if "Failed" in types else ""
    return state + (",Issued" if _at(obj, "status.certificate") else "")


def _claim(obj: Obj, _: datetime) -> str:
    states = ["deleted"] if _at(obj, "metadata.deletionTimestamp") else []
    if not _at(obj, "status.allocation"):
        return ",".join(states or ["pending"])
    states.append("allocated")
    return ",".join([*states, *(["reserved"] if _at(obj, "status.reservedFor") else [])])


def _targets(obj: Obj, _: datetime) -> str:
    shown = []
    for metric in _at(obj, "spec.metrics") or ():
        resource = metric.get("resource") or {}
        percent = _at(resource, "target.averageUtilization")
        head = f"{resource['name']}: " if resource.get("name") else ""
        shown.append(f"{head}<unknown>/{percent}%" if percent is not None else f"{head}<unknown>/<auto>")
    return ", ".join(shown) or NONE


def _parent(obj: Obj, _: datetime) -> str:
    ref = _at(obj, "spec.parentRef") or {}
    resource = ".".join(part for part in (ref.get("resource"), ref.get("group")) if part)
    return (
        "/".join(part for part in (resource.lower(), ref.get("namespace"), ref.get("name")) if part) or NONE
    )


def _service(obj: Obj, _: datetime) -> str:
    service = _at(obj, "spec.service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _last_schedule(obj: Obj, now: datetime) -> str:
    last = _at(obj, "status.lastScheduleTime")
    return age(last, now) if last else NONE


def _address(obj: Obj, _: datetime) -> str:
    return ",".join(
        one.get("ip") or one.get("hostname") or "" for one in _at(obj, "status.loadBalancer.ingress") or ()
    )


_FUNCTIONS: dict[str, Cell] = {
    "age": lambda obj, now: age(_at(obj, "metadata.creationTimestamp"), now),
    "names": _containers("name"),
    "images": _containers("image"),
    "pod labels": lambda obj, _: selector_text(_at(obj, "template.metadata.labels")) or NONE,
    "selector": lambda obj, _: selector_text(_at(obj, "spec.jobTemplate.spec.selector")) or NONE,
    "pod selector": lambda obj, _: selector_text(_at(obj, "spec.podSelector")) or NONE,
    "requests": _quota(limits=False),
    "limits": _quota(limits=True),
    "service": _service,
    "available": lambda obj, _: _condition(obj, "Available", "Unknown"),
    "dangling": lambda obj, _: _condition(obj, "Dangling", "?"),
    "scaled": lambda obj, _: f"{_at(obj, 'spec.scaleTargetRef.kind')}/{_at(obj, 'spec.scaleTargetRef.name')}",
    "targets": _targets,
    "last schedule": _last_schedule,
    "certificate": _certificate,
    "address": _address,
    "ingress ports": lambda obj, _: "80, 443" if _at(obj, "spec.tls") else "80",
    "parent": _parent,
    "role": lambda obj, _: f"{_at(obj, 'roleRef.kind')}/{_at(obj, 'roleRef.name')}",
    "User": _subjects("User"),
    "Group": _subjects("Group"),
    "ServiceAccount": _subjects("ServiceAccount"),
    "claim": _claim,
}
