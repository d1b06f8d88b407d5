"""CustomResourceDefinitions: accepted at once, served at once, and their objects go with them."""

from __future__ import annotations

from typing import Any

from gangline import clock
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.registry import CRD_COLLECTION, RequestTarget

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def established(api: ApiContext, crd: dict[str, Any]) -> dict[str, Any]:
    """Return the CRD with the status that says how it is served.

    Established follows from accepted names: there is one API server, and it serves a CRD once that is stored.
    """
    spec = crd.get("spec") or {}
    names = dict(spec.get("names") or {})
    if "kind" in names:
        names.setdefault("singular", str(names["kind"]).lower())
        names.setdefault("listKind", f"{names['kind']}List")
    status = dict(crd.get("status") or {})
    refused = _names_taken(api, crd)
    now = clock.format_time(clock.now())
    accepted = _condition(
        "NamesAccepted",
        not refused,
        "NoConflicts" if not refused else "NamesConflict",
        refused or "no conflicts found",
        now,
    )
    serving = _condition(
        "Established",
        not refused,
        "InitialNamesAccepted" if not refused else "NotAccepted",
        "the initial names have been accepted" if not refused else "not all names are accepted",
        now,
    )
    others = [
        c for c in status.get("conditions") or [] if c.get("type") not in ("NamesAccepted", "Established")
    ]
    before = {c.get("type"): c for c in status.get("conditions") or []}
    for condition in (accepted, serving):
        same = before.get(condition["type"], {})
        if same.get("status") == condition["status"]:
            condition["lastTransitionTime"] = same.get("lastTransitionTime", now)
    status["conditions"] = [accepted, serving, *others]
    status["acceptedNames"] = {} if refused else names
    stored = [v["name"] for v in spec.get("versions") or [] if v.get("storage") and v.get("name")]
    known = status.get("storedVersions") or []
    status["storedVersions"] = known + [name for name in stored if name not in known]
    return {**crd, "spec": {**spec, "names": names}, "status": status}


def _names_taken(api: ApiContext, crd: dict[str, Any]) -> str:
    """Return which name another kind of the group has already, empty when none."""
    spec = crd.get("spec") or {}
    names, group = spec.get("names") or {}, spec.get("group")
    own = crd["metadata"].get("name")
    for row in api.registry.rows:
        resource = row.resource
        if resource.group != group or f"{resource.plural}.{resource.group}" == own:
            continue
        if names.get("plural") in (resource.plural, row.singular):
            return f'"{names["plural"]}" is already in use'
        if names.get("kind") == resource.kind:
            return f'"{names["kind"]}" is already in use'
    return ""


def _condition(type_: str, holds: bool, reason: str, message: str, now: str) -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True" if holds else "False",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def check_lasting(api: ApiContext, target: RequestTarget) -> None:
    """Refuse to create objects of a custom kind whose CRD is going away.

    Raises:
        StatusError: 405.
    """
    if not target.served.is_custom:
        return
    resource = target.served.resource
    found = api.store.latest(CRD_COLLECTION, "", f"{resource.plural}.{resource.group}")
    if found is not None and "deletionTimestamp" in found.obj["metadata"]:
        message = "create not allowed while custom resource definition is terminating"
        raise status_errors.StatusError(405, "MethodNotAllowed", message)


def collection_of_crd(crd: dict[str, Any]) -> str:
    """Return the collection that holds the objects of a CRD."""
    spec = crd["spec"]
    return f"{spec['group']}/{spec['names']['plural']}"


def terminating(api: ApiContext) -> list[str]:
    """Return the names of CRDs that are being deleted."""
    return [
        entry.obj["metadata"]["name"]
        for entry in api.store.entries(CRD_COLLECTION)
        if "deletionTimestamp" in entry.obj["metadata"]
    ]
