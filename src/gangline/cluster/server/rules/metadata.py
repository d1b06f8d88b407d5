"""The rules of ``metadata`` that hold for every kind: what the server sets, keeps and refuses.

Inputs are never changed; results are new objects whose ``metadata`` may be written to.
"""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from gangline import clock
from gangline.cluster.server import status_errors
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.resources import ServedResource
from gangline.cluster.server.wire.rendering import in_order
from gangline.errors import FieldError

GENERATED_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
GENERATED_LENGTH = 5
GENERATED_PREFIX_MAX = 58

_KEPT = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "managedFields",
)
"""What an update cannot change: the old value, or its absence, wins."""
_DROPPED = ("selfLink", "resourceVersion")


def check_type(target: RequestTarget, obj: dict[str, Any]) -> None:
    """Refuse a body of another kind or version than the path's.

    Raises:
        StatusError: 400.
    """
    resource = target.served.resource
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if not target.served.is_custom:  # built-in kinds may leave both to the path
        version = resource.api_version if version in (None, "") else version
        kind = resource.kind if kind in (None, "") else kind
    if (version, kind) != (resource.api_version, resource.kind):
        raise status_errors.bad_request(
            f"the API version in the data ({version or ''}, Kind={kind or ''}) does not match the expected "
            f"API version ({resource.api_version}, Kind={resource.kind})"
        )
    if not isinstance(obj.get("metadata") or {}, dict):
        raise status_errors.bad_request("metadata: must be an object")


def check_place(target: RequestTarget, metadata: dict[str, Any]) -> None:
    """Refuse a body whose name or namespace is not the path's.

    Raises:
        StatusError: 400.
    """
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if target.name and name and name != target.name:
        raise status_errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )
    if namespace and namespace != target.namespace:
        if not target.served.resource.namespaced:
            raise status_errors.bad_request("namespace may not be set on a cluster-scoped object")
        raise status_errors.bad_request(
            f"the namespace of the provided object does not match the namespace sent on the request "
            f"({namespace} and {target.namespace})"
        )


def generate_name(prefix: str) -> str:
    """Return the prefix with five random characters, cut to 63."""
    tail = "".join(secrets.choice(GENERATED_ALPHABET) for _ in range(GENERATED_LENGTH))
    return prefix[:GENERATED_PREFIX_MAX] + tail


def created(target: RequestTarget, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object as it is stored first: name, uid, creation time and generation set.

    Raises:
        StatusError: 400 or 422.
    """
    check_type(target, obj)
    result = in_order(target.served, obj)
    metadata = result["metadata"]
    check_place(target, metadata)
    if metadata.get("resourceVersion"):
        raise status_errors.bad_request("resourceVersion should not be set on objects to be created")
    for key in (
        *_DROPPED,
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ):
        metadata.pop(key, None)
    if not metadata.get("name"):
        prefix = metadata.get("generateName")
        if not prefix:
            rule = FieldError("Required", "metadata.name", "name or generateName is required")
            raise status_errors.invalid(target.served, "", [rule])
        metadata["name"] = generate_name(str(prefix))
    if target.served.resource.namespaced:
        metadata["namespace"] = target.namespace
    else:
        metadata.pop("namespace", None)
    _drop_empty(metadata)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = clock.format_time(clock.now())
    if target.served.has_generation:
        metadata["generation"] = 1
    return result


def _drop_empty(metadata: dict[str, Any]) -> None:
    """Leave out what says nothing, so that a later write of the same compares as the same."""
    for key in ("labels", "annotations", "finalizers", "ownerReferences"):
        if key in metadata and not metadata[key]:
            del metadata[key]


def updated(target: RequestTarget, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the new state with all that an update cannot change taken from the old one.

    Raises:
        StatusError: 400 another name, 409 another uid or revision, 422 finalizers added during deletion.
    """
    check_type(target, new)
    served = target.served
    result = in_order(served, new)
    metadata, before = result["metadata"], old["metadata"]
    check_place(target, metadata)
    revision, uid = metadata.get("resourceVersion"), metadata.get("uid")
    if uid and uid != before["uid"]:
        cause = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
        raise status_errors.conflict(served, target.name, cause)
    if revision and revision != before["resourceVersion"]:
        raise status_errors.conflict(served, target.name)
    for key in _DROPPED:
        metadata.pop(key, None)
    for key in (*_KEPT, "name", "namespace"):
        if key in before:
            metadata[key] = before[key]
        else:
            metadata.pop(key, None)
    _drop_empty(metadata)
    if "deletionTimestamp" in before:
        added = set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if added:
            rule = FieldError(
                "Forbidden",
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers {sorted(added)}",
            )
            raise status_errors.invalid(served, target.name, [rule])
    return result


def count_generation(served: ServedResource, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Set ``metadata.generation`` of ``new``: one more when what was asked for has changed."""
    if not served.has_generation:
        return
    generation = old["metadata"].get("generation", 1)
    if is_other_wish(served, old, new):
        generation += 1
    new["metadata"]["generation"] = generation


def is_other_wish(served: ServedResource, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether anything differs outside metadata and, where it is a subresource, status."""
    apart = {"metadata", "apiVersion", "kind"}
    if "status" in served.subresources:
        apart.add("status")
    keys = (old.keys() | new.keys()) - apart
    return any(old.get(key) != new.get(key) for key in keys)


def is_same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether an update changes nothing: such a write gets no revision and no watcher hears of it."""
    if old.keys() != new.keys():
        return False
    if any(old[key] != new[key] for key in old if key not in ("metadata", "apiVersion")):
        return False
    left, right = old["metadata"], new["metadata"]
    keys = (left.keys() | right.keys()) - {"resourceVersion"}
    return all(left.get(key) == right.get(key) for key in keys)
