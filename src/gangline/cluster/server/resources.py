"""What the API server serves: one table of built-in kinds, and the same rows made from CRDs.

A row says where a kind lives, how discovery presents it and what may be done with it. Discovery, OpenAPI,
routing and storage all read the rows, so a kind is added in one place. Rows hold no state and no code of a
kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gangline.api import resources as r
from gangline.api.resources import Resource

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""Verbs of a stored kind, in the order in which discovery prints them."""

CREATE_ONLY = ("create",)
"""Verb of a review: a question that is answered and not stored."""

SUBRESOURCE_VERBS: dict[str, tuple[str, ...]] = {
    "status": ("get", "patch", "update"),
    "scale": ("get", "patch", "update"),
    "finalize": ("update",),
    "binding": ("create",),
    "eviction": ("create",),
    "token": ("create",),
    "log": ("get",),
    "exec": ("create", "get"),
}
"""What each subresource allows."""


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
        has_generation: whether ``metadata.generation`` counts changes outside metadata and status.
        storage_version: whether objects are stored with this row's ``apiVersion``.
        is_custom: whether the row comes from a CRD: no strategic merge, updates need a resourceVersion.
        schema: structural schema (``openAPIV3Schema``) of a custom kind, else None.
        columns: ``additionalPrinterColumns`` of a custom kind.
        selectable_fields: field paths (``spec.x``) that field selectors of a custom kind may name.
        scale_paths: JSON paths ``specReplicasPath``, ``statusReplicasPath``, ``labelSelectorPath`` of
            ``scale``.
    """

    resource: Resource
    list_kind: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    storage_group: str = ""
    has_generation: bool = False
    storage_version: bool = True
    is_custom: bool = False
    schema: dict[str, Any] | None = field(default=None, hash=False)
    columns: tuple[dict[str, Any], ...] | None = field(default=None, hash=False)
    selectable_fields: tuple[str, ...] = ()
    scale_paths: dict[str, str] | None = field(default=None, hash=False)

    @property
    def is_stored(self) -> bool:
        """Whether objects of the kind exist; reviews are answered and forgotten."""
        return "get" in self.verbs


def _built_in(
    resource: Resource,
    *short_names: str,
    subresources: tuple[str, ...] = (),
    generation: bool = False,
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = ALL_VERBS,
) -> ServedResource:
    return ServedResource(
        resource=resource,
        list_kind=f"{resource.kind}List",
        singular=resource.kind.lower(),
        short_names=short_names,
        categories=categories,
        subresources=frozenset(subresources),
        verbs=verbs,
        storage_group=resource.group,
        has_generation=generation,
    )


def _review(group: str, plural: str, kind: str, *, namespaced: bool = False) -> ServedResource:
    return _built_in(Resource(group, "v1", plural, kind, namespaced=namespaced), verbs=CREATE_ONLY)


BUILT_IN_SERVED: tuple[ServedResource, ...] = (
    _built_in(r.NAMESPACES, "ns", subresources=("status", "finalize")),
    _built_in(r.NODES, "no", subresources=("status",)),
    _built_in(
        r.PODS,
        "po",
        subresources=("status", "log", "binding", "eviction", "exec"),
        generation=True,
        categories=("all",),
    ),
    _built_in(r.SERVICES, "svc", subresources=("status",), categories=("all",)),
    _built_in(r.ENDPOINTS, "ep"),
    _built_in(r.CONFIG_MAPS, "cm"),
    _built_in(r.SECRETS),
    _built_in(r.SERVICE_ACCOUNTS, "sa", subresources=("token",)),
    _built_in(r.EVENTS, "ev"),
    _built_in(r.ENDPOINT_SLICES, generation=True),
    _built_in(r.JOBS, subresources=("status",), generation=True, categories=("all",)),
    _built_in(r.LEASES),
    _built_in(r.PRIORITY_CLASSES, "pc", generation=True),
    _built_in(
        r.CRDS, "crd", "crds", subresources=("status",), generation=True, categories=("api-extensions",)
    ),
    _review("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    _review("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
    _review("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    _review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    _review("authentication.k8s.io", "tokenreviews", "TokenReview"),
)

STORED_KINDS: tuple[r.Resource, ...] = tuple(row.resource for row in BUILT_IN_SERVED if row.is_stored)
"""Built-in kinds whose objects are kept; reviews, for one, are answered only."""
"""Kinds served without any CRD."""


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
    return sorted(rows, key=lambda row: version_priority(row.resource.version), reverse=True)


def _custom(spec: dict[str, Any], names: dict[str, Any], version: dict[str, Any]) -> ServedResource:
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
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
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        selectable_fields=tuple(
            entry["jsonPath"].lstrip(".") for entry in version.get("selectableFields") or ()
        ),
        scale_paths=dict(scale) if scale is not None else None,
    )


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
