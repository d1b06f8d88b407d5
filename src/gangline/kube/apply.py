"""Makes an object as a manifest says, as ``kubectl apply`` does on the client's side.

The manifest of the last time is kept in the annotation ``kubectl.kubernetes.io/last-applied-configuration``,
so what a user deletes from the file is deleted from the object, and what others have added stays. ``kubectl``
and this may be used on the same object in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gangline.api.resources import Resource
from gangline.kube.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Verb = Literal["created", "configured", "unchanged"]


async def apply(client: ObjectClient, resource: Resource, obj: dict[str, Any]) -> tuple[Verb, dict[str, Any]]:
    """Create or change an object, and return what was done and the result.

    Args:
        client: the server.
        resource: the kind of ``obj``.
        obj: the manifest; without a namespace the connection's counts. It is not changed.

    Raises:
        Invalid: it breaks rules, or changes what cannot be changed.
        ApiError: the server refused for another reason.
    """
    desired = with_last_applied(obj, client.connection.namespace if resource.namespaced else "")
    metadata = desired["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace")
    try:
        live = await client.get(resource, name, namespace)
    except NotFound:
        try:
            return "created", await client.create(resource, desired)
        except AlreadyExists:
            live = await client.get(resource, name, namespace)
    patch = three_way_patch(_last_applied(live), desired, live)
    if not patch:
        return "unchanged", live
    result = await client.patch(resource, name, patch, namespace)
    changed = result["metadata"].get("resourceVersion") != live["metadata"].get("resourceVersion")
    return ("configured" if changed else "unchanged"), result


def with_last_applied(obj: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """Return a copy of a manifest that carries itself in the annotation, as kubectl writes it.

    Args:
        obj: the manifest; an annotation that it has already is dropped.
        namespace: filled in where the manifest names none.
    """
    metadata = dict(obj.get("metadata") or {})
    if namespace:
        metadata.setdefault("namespace", namespace)
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED
    }
    plain = {**obj, "metadata": {**metadata, "annotations": annotations}}
    plain.pop("status", None)
    text = msgspec.json.encode(plain, order="deterministic").decode() + "\n"
    return {**plain, "metadata": {**metadata, "annotations": {**annotations, LAST_APPLIED: text}}}


def three_way_patch(last: dict[str, Any], desired: dict[str, Any], live: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that makes ``live`` as desired; empty when nothing is to be done.

    A key that is in ``last`` and no longer desired is removed. Keys that only ``live`` has are left alone. A
    list that the manifest has not changed since ``last`` and whose items are all in ``live`` with more fields
    (the server's defaults) is left alone; any other list is replaced whole.
    """
    patch: dict[str, Any] = {}
    for key in last:
        if key not in desired and key in live:
            patch[key] = None
    for key, want in desired.items():
        have = live.get(key)
        if isinstance(want, dict) and isinstance(have, dict):
            before = last.get(key)
            inner = three_way_patch(before if isinstance(before, dict) else {}, want, have)
            if inner:
                patch[key] = inner
        elif want is None:
            if key in live:
                patch[key] = None
        elif not _is_covered(want, have, is_same_as_before=last.get(key) == want):
            patch[key] = want
    return patch


def _is_covered(want: Any, have: Any, *, is_same_as_before: bool) -> bool:
    """Whether ``have`` says all that ``want`` does; lists may have richer items only if the wish is old."""
    if isinstance(want, dict) and isinstance(have, dict):
        return all(
            _is_covered(value, have.get(key), is_same_as_before=is_same_as_before)
            for key, value in want.items()
        )
    if isinstance(want, list) and isinstance(have, list) and is_same_as_before:
        return len(want) == len(have) and all(
            _is_covered(one, other, is_same_as_before=True) for one, other in zip(want, have, strict=True)
        )
    return bool(want == have)


def _last_applied(live: dict[str, Any]) -> dict[str, Any]:
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED, "")
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with the merge patch applied: null deletes, objects merge, all else replaces.

    Cost: O(size of the patch and of the objects on its paths).
    Source: RFC 7386.
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result
