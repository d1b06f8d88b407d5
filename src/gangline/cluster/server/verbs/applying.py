"""Server-side apply: PATCH with ``application/apply-patch+yaml``.

An object that does not exist is created; fields that the manager applied before and now leaves out go away
unless another manager applied them too; changing what another manager applied is a conflict, or takes it over
by force.
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http import off_loop
from gangline.cluster.server.http.request_context import RequestContext, answer, decode_yaml
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.rules import metadata, session_rule, strategy
from gangline.cluster.server.store.events import Entry
from gangline.cluster.server.verbs import apply_fields, writing
from gangline.cluster.server.verbs.apply_fields import Tree
from gangline.cluster.server.verbs.apply_shapes import MergeShape, shape_of
from gangline.cluster.server.verbs.field_managers import MANAGER_MAX, Manager, fields_of
from gangline.cluster.server.verbs.reading import include_object
from gangline.cluster.server.wire import rendering

KUBECTL = "kubectl"
"""The manager of ``kubectl apply --server-side``."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


async def apply(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer an apply patch: 201 when the object is created, else 200."""
    target = context.target
    manager = _manager(context)
    raw = await context.raw_body()
    applied = await off_loop.run_sized(len(raw), decode_yaml, raw)
    applied = _checked(api, context, applied)
    if api.store.latest(*target.key) is None:
        entry, status = await _create(api, context, applied, manager), 201
    else:
        plain = RequestTarget(target.served, target.namespace, target.name)
        entry = await writing.update_object(
            api, context, lambda live: _next_state(api, context, applied, manager, live), target=plain
        )
        status = 200
    data = rendering.single(entry, target.served, context.form, include_object(context))
    return answer(data, status=status, warnings=context.warnings)


def _manager(context: RequestContext) -> Manager:
    name = context.query.get("fieldManager", "")
    if not name or len(name) > MANAGER_MAX:
        rule = "is required for apply patch" if not name else f"may not be longer than {MANAGER_MAX}"
        raise status_errors.unprocessable(f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {rule}')
    return Manager(name, context.target.subresource, "Apply")


def _checked(api: ApiContext, context: RequestContext, applied: Any) -> dict[str, Any]:
    """Return the manifest with its unknown fields dropped and its name filled in.

    Raises:
        StatusError: 400.
    """
    target = context.target
    if not isinstance(applied, dict) or not isinstance(applied.get("metadata") or {}, dict):
        raise status_errors.bad_request("the manifest to apply is no object with metadata")
    if not applied.get("kind") or not applied.get("apiVersion"):
        raise status_errors.bad_request("apiVersion and kind must be set in a manifest to apply")
    meta = applied.get("metadata") or {}
    if meta.get("managedFields"):
        raise status_errors.bad_request("metadata.managedFields must be nil")
    metadata.check_type(target, applied)
    metadata.check_place(target, meta)
    try:
        kept, warnings = strategy.known_fields(target.served, applied, context.field_validation)
    except strategy.UnknownFields as error:
        name = "/".join(part for part in (target.namespace, target.name) if part)
        raise status_errors.bad_request(
            f"failed to create typed patch object ({name}; {target.served.resource.api_version}, "
            f"Kind={target.served.resource.kind}): "
            + "; ".join(f".{path}: field not declared in schema" for path in error.paths)
        ) from None
    context.warnings += warnings
    writing.warn_of_pods(api, context, kept)
    if target.subresource == "status":
        kept = {key: kept[key] for key in ("apiVersion", "kind", "metadata", "status") if key in kept}
    elif "status" in target.served.subresources:
        kept = {key: value for key, value in kept.items() if key != "status"}
    place = {"namespace": target.namespace} if target.served.resource.namespaced else {}
    return {**kept, "metadata": {**place, "name": target.name, **(kept.get("metadata") or {})}}


async def _create(
    api: ApiContext, context: RequestContext, applied: dict[str, Any], manager: Manager
) -> Entry:
    target, meta = context.target, applied["metadata"]
    if target.subresource:
        raise status_errors.not_found(target.served, target.name)
    if meta.get("uid") or meta.get("resourceVersion"):
        raise status_errors.conflict(target.served, target.name, "the object does not exist any more")
    session_rule.check(context, applied)
    writing.warn_of_kind(context)
    api.authorizer.check_gift(context.user, target, applied)
    owned = apply_fields.owned_fields(applied, shape_of(target.served))
    fields = [manager.entry(target.served, owned)]
    place = RequestTarget(target.served, target.namespace)
    return await writing.create_object(
        api,
        place,
        applied,
        dry_run=context.dry_run,
        managed_fields=fields,
        size_bytes=context.body_bytes,
    )


def _next_state(
    api: ApiContext, context: RequestContext, applied: dict[str, Any], manager: Manager, live: dict[str, Any]
) -> dict[str, Any]:
    """Return what applying makes of the object as it is.

    Raises:
        StatusError: 409, a conflict with another manager; 422.
    """
    target = context.target
    shape = shape_of(target.served)
    entries: list[dict[str, Any]] = live["metadata"].get("managedFields") or []
    mine = next((entry for entry in entries if manager.owns(entry)), None)
    others = [entry for entry in entries if not manager.owns(entry)]
    clashes = _conflicts(applied, live, shape, others)
    if not context.flag("force"):
        allowed = _taken_over(live, shape) if manager.name == KUBECTL else {}
        refused = [apply_fields.minus(clash, allowed) for clash in clashes]
        if any(refused):
            raise _conflict_failure(target, others, refused)
    others = [_without_clash(entry, clash) for entry, clash in zip(others, clashes, strict=True)]
    others = [entry for entry in others if fields_of(entry)]

    owned = apply_fields.owned_fields(applied, shape)
    before = fields_of(mine or {})
    kept = apply_fields.union([fields_of(entry) for entry in others])
    body = apply_fields.merged(live, applied, shape)
    body = apply_fields.without(body, apply_fields.minus(before, owned), kept, shape)
    obj = writing.next_state(api, target, live, _with_revision(body, applied))
    if mine is None or owned != before:
        mine = manager.entry(target.served, owned)
    obj["metadata"]["managedFields"] = [*others, mine]
    return obj


def _taken_over(live: dict[str, Any], shape: MergeShape) -> Tree:
    """Return the fields that ``kubectl apply`` wrote from its side: applied by the server they are its own.

    Source: the last-applied manager of k8s.io/apimachinery managedfields.
    """
    try:
        last = msgspec.json.decode((live["metadata"].get("annotations") or {}).get(LAST_APPLIED, ""))
    except msgspec.DecodeError:
        return {}
    return apply_fields.owned_fields(last, shape) if isinstance(last, dict) else {}


def _with_revision(body: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    """Return the body with a revision only when the manifest names one: then it is a precondition."""
    meta = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    if revision := applied["metadata"].get("resourceVersion"):
        meta["resourceVersion"] = revision
    return {**body, "metadata": meta}


def _conflicts(
    applied: dict[str, Any], live: dict[str, Any], shape: MergeShape, others: list[dict[str, Any]]
) -> list[Tree]:
    """Return, for each entry of others, its fields that the manifest would change."""
    return [apply_fields.conflicts(applied, live, shape, fields_of(entry)) for entry in others]


def _without_clash(entry: dict[str, Any], clash: Tree) -> dict[str, Any]:
    if not clash:
        return entry
    return {**entry, "fieldsV1": apply_fields.minus(fields_of(entry), clash)}


def _conflict_failure(
    target: RequestTarget, others: list[dict[str, Any]], clashes: list[Tree]
) -> status_errors.StatusError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_shown(entry)}", "field": path}
        for entry, tree in zip(others, clashes, strict=True)
        for path in apply_fields.paths(tree)
    ]
    count = len(causes)
    lines = "\n".join(f"- {cause['message']}: {cause['field']}" for cause in causes)
    message = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: {lines}"
    failure = status_errors.conflict(target.served, target.name)
    failure.message = message
    failure.details["causes"] = causes
    return failure


def _shown(entry: dict[str, Any]) -> str:
    """Return a manager as conflicts name it."""
    text = f'"{entry.get("manager")}"'
    if entry.get("subresource"):
        text += f' with subresource "{entry["subresource"]}"'
    if entry.get("operation") == "Update":
        text += f" using {entry.get('apiVersion')}"
        text += f" at {entry['time']}" if entry.get("time") else ""
    return text
