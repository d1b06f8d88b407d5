"""What the API server serves: a row for each built-in kind and version, and the same made from CRDs.

A row says where a kind lives, how discovery presents it and what may be done with it. Discovery, OpenAPI,
routing and storage all read the rows. Those of built-in kinds are the lines of ``served_kinds.txt``, which
``tools/served_kinds.py`` writes from a release of Kubernetes. Rows hold no state and no code of a kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangline.api import resources as r
from gangline.api.resources import Resource

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""Verbs of a stored kind, in the order in which discovery prints them."""

SUBRESOURCE_VERBS: dict[str, tuple[str, ...]] = {
    "status": ("get", "patch", "update"),
    "approval": ("get", "patch", "update"),
    "scale": ("get", "patch", "update"),
    "finalize": ("update",),
    "binding": ("create",),
    "eviction": ("create",),
    "ephemeralcontainers": ("get", "patch", "update"),
    "token": ("create",),
    "log": ("get",),
    "attach": ("create", "get"),
    "exec": ("create", "get"),
    "portforward": ("create", "get"),
    "proxy": ("create", "delete", "get", "patch", "update"),
}
"""What each subresource that is served allows; others of a kind are not there."""


@dataclass(frozen=True, slots=True)
class ServedResource:
    """One kind at one version, as served.

    Attributes:
        resource: group, version, plural, kind and scope.
        list_kind: kind of a list of it.
        singular: singular name for ``kubectl get``.
        short_names: abbreviations for ``kubectl get``.
        categories: groups of kinds that ``kubectl get`` knows, such as ``all``.
        subresources: names of the subresources, keys of ``SUBRESOURCE_VERBS``.
        verbs: what may be done with the kind itself.
        storage_group: API group under which objects are stored; storage is keyed by it and the plural, so
            versions of one kind share their objects.
        storage_plural: plural under which they are stored, empty for the kind's own; a view of another kind
            has that one's.
        has_generation: whether ``metadata.generation`` counts changes outside metadata and status.
        storage_version: whether objects are stored with this row's ``apiVersion``.
        is_custom: whether the row comes from a CRD: no strategic merge, updates need a resourceVersion.
        schema: structural schema (``openAPIV3Schema``) of a custom kind, else None.
        columns: ``additionalPrinterColumns`` of a custom kind.
        selectable_fields: field paths (``spec.x``) that field selectors of a custom kind may name.
        scale_paths: JSON paths ``specReplicasPath``, ``statusReplicasPath``, ``labelSelectorPath`` of
            ``scale``.
        has_defaults: whether a custom kind has defaults: objects stored without them show them.
        returns_deleted: whether the last deletion answers with the object instead of a Status.
        deprecation: warning to whoever writes a deprecated version of a custom kind, else empty.
    """

    resource: Resource
    list_kind: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    storage_group: str = ""
    storage_plural: str = ""
    has_generation: bool = False
    storage_version: bool = True
    is_custom: bool = False
    schema: dict[str, Any] | None = field(default=None, hash=False)
    columns: tuple[dict[str, Any], ...] | None = field(default=None, hash=False)
    selectable_fields: tuple[str, ...] = ()
    scale_paths: dict[str, str] | None = field(default=None, hash=False)
    deprecation: str = ""
    returns_deleted: bool = False
    has_defaults: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether objects of the kind are stored only, and nothing acts on them here."""
        return not self.is_custom and self.resource.plural in IDLE

    @property
    def is_stored(self) -> bool:
        """Whether objects of the kind exist; reviews are answered and forgotten."""
        return "get" in self.verbs


_TABLE = Path(__file__).with_name("served_kinds.txt")

PROJECTS = Resource("project.openshift.io", "v1", "projects", "Project", namespaced=False)
PROJECT_REQUESTS = Resource(
    "project.openshift.io", "v1", "projectrequests", "ProjectRequest", namespaced=False
)
_OF_OPENSHIFT = (
    "projects Project cluster only=delete,get,list,watch",
    "projectrequests ProjectRequest cluster only=create",
)
"""Lines as in the table: OpenShift's names for namespaces, which its guides and its client begin with."""

POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
_OF_METRICS = ("pods PodMetrics only=get,list", "nodes NodeMetrics cluster only=get,list")
"""Lines as in the table: what is measured when asked, and stored nowhere."""

_OF_GANGS = ("podgroups PodGroup generation sub=status",)
"""Lines as in the table: Kubernetes' own gangs, which 1.37 serves behind a feature gate."""

_STORED_AS = {
    Resource("events.k8s.io", "v1", "events", "Event"): r.EVENTS,
    r.HORIZONTAL_POD_AUTOSCALERS_V1: r.HORIZONTAL_POD_AUTOSCALERS,
    PROJECTS: r.NAMESPACES,
}
"""Kinds whose objects are those of another group or version."""

_SCALE_PATHS = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}
"""Where every built-in kind that can be scaled has its replicas and its selector."""

IDLE = frozenset(
    {
        *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
        *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        *("apiservices",),
        *("horizontalpodautoscalers", "cronjobs", "certificatesigningrequests"),
        *("flowschemas", "prioritylevelconfigurations", "ingresses", "ingressclasses", "networkpolicies"),
        *("ipaddresses", "servicecidrs", "runtimeclasses", "poddisruptionbudgets"),
        *("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"),
        *("csidrivers", "csinodes", "csistoragecapacities", "volumeattachments", "volumeattributesclasses"),
    }
)
"""Plurals of the kinds on whose objects nothing acts here: whoever creates one is told so."""


def _built_in(api_version: str, line: str) -> ServedResource:
    """Return the row of one line of the table.

    A line is ``PLURAL KIND WORD ...``: ``cluster`` for kinds without a namespace, ``generation`` where
    ``metadata.generation`` counts, ``returned`` where a deletion answers with the object; and lists:
    ``short=`` names, ``in=`` categories, ``sub=`` subresources, ``only=`` verbs or ``not=`` verbs.
    """
    group, _, version = api_version.rpartition("/")
    plural, kind, *words = line.split()
    lists = {name: tuple(values.split(",")) for name, _, values in (word.partition("=") for word in words)}
    resource = Resource(group, version, plural, kind, namespaced="cluster" not in lists)
    stored = _STORED_AS.get(resource, resource)
    subresources = frozenset(lists.get("sub", ())) & SUBRESOURCE_VERBS.keys()
    if kind == "Node":  # there is no kubelet to lead to
        subresources -= {"proxy"}
    verbs = lists.get("only") or tuple(verb for verb in ALL_VERBS if verb not in lists.get("not", ()))
    return ServedResource(
        resource=resource,
        list_kind=f"{kind}List",
        singular=kind.lower(),
        short_names=lists.get("short", ()),
        categories=lists.get("in", ()),
        subresources=subresources,
        verbs=verbs,
        storage_group=stored.group,
        storage_plural=stored.plural,
        has_generation="generation" in lists,
        returns_deleted="returned" in lists,
        storage_version=stored == resource,
        scale_paths=_SCALE_PATHS if "scale" in subresources else None,
    )


def _built_in_rows() -> Iterator[ServedResource]:
    """Yield the rows of the table; a part of it begins with ``[GROUP/VERSION]``. Cost: 0.5 ms."""
    api_version = ""
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            api_version = line.strip("[]")
        elif not line.startswith("#"):
            yield _built_in(api_version, line)
    for line in _OF_OPENSHIFT:
        yield _built_in(PROJECTS.api_version, line)
    for line in _OF_METRICS:
        yield _built_in(POD_METRICS.api_version, line)
    for line in _OF_GANGS:
        yield _built_in(r.KUBERNETES_POD_GROUPS.api_version, line)


BUILT_IN_SERVED: tuple[ServedResource, ...] = tuple(_built_in_rows())
"""Kinds served without any CRD: those of the release of Kubernetes from which the table is made."""

STORED_KINDS: tuple[r.Resource, ...] = tuple(
    row.resource for row in BUILT_IN_SERVED if row.storage_version and "watch" in row.verbs
)
"""Built-in kinds whose objects are kept, each once; reviews, for one, are answered only."""


def crd_served(crd: dict[str, Any]) -> list[ServedResource]:
    """Return the rows of every served version of a CustomResourceDefinition, best version first.

    A CRD that lacks its required parts gives no rows; validation refuses such a CRD before it is stored.

    Cost: O(versions); schemas are shared, not copied.
    """
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    if not (spec.get("group") and names.get("plural") and names.get("kind")):
        return []
    rows = [
        _custom(spec, names, version)
        for version in spec.get("versions") or []
        if version.get("served") and version.get("name")
    ]
    return sorted(rows, key=_preference, reverse=True)


def _preference(row: ServedResource) -> tuple[bool, tuple[int, int, int, str]]:
    return not row.deprecation, version_priority(row.resource.version)


def _custom(spec: dict[str, Any], names: dict[str, Any], version: dict[str, Any]) -> ServedResource:
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    return ServedResource(
        resource=Resource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec.get("scope") == "Namespaced",
        ),
        list_kind=names.get("listKind") or f"{names['kind']}List",
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset(name for name in ("status", "scale") if subresources.get(name) is not None),
        storage_group=spec["group"],
        has_generation=True,
        storage_version=bool(version.get("storage")),
        is_custom=True,
        schema=schema,
        has_defaults=_has_defaults(schema),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        selectable_fields=tuple(
            entry["jsonPath"].lstrip(".") for entry in version.get("selectableFields") or ()
        ),
        scale_paths=dict(scale) if scale is not None else None,
        deprecation=_deprecation(spec, names, version),
    )


def _has_defaults(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    children = [
        *(schema.get("properties") or {}).values(),
        schema.get("items"),
        schema.get("additionalProperties"),
    ]
    return "default" in schema or any(map(_has_defaults, children))


def _deprecation(spec: dict[str, Any], names: dict[str, Any], version: dict[str, Any]) -> str:
    default = f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
    return version.get("deprecationWarning") or default if version.get("deprecated") else ""


def preferred_first(versions: dict[str, list[ServedResource]]) -> dict[str, list[ServedResource]]:
    """Return a group's rows by version, those first that clients shall use.

    A version in which any kind is deprecated comes last: clients take a kind from the first version that has
    it. Kubernetes goes by the names alone: there ``kubectl get`` shows objects of v2beta1 as v1, under which
    they mean something else.
    """
    ranks = {
        name: (min(_preference(row)[0] for row in rows), version_priority(name))
        for name, rows in versions.items()
    }
    return {name: versions[name] for name in sorted(versions, key=lambda name: ranks[name], reverse=True)}


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Return a sort key: GA before beta before alpha, then the higher number; other names come last.

    Source: k8s.io/apimachinery version.CompareKubeAwareVersionStrings.
    """
    head, _, rest = version.partition("beta")
    rank = 2 if rest else 3
    if rank == 3:
        head, _, rest = version.partition("alpha")
        rank = 1 if rest else 3
    if not head.startswith("v") or not head[1:].isdigit() or (rank < 3 and not rest.isdigit()):
        return (0, 0, 0, version)
    return (rank, int(head[1:]), int(rest or 0), "")
