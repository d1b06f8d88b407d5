"""POST and PUT, and what every verb that changes an object does.

Between reading the newest state and handing the next one to the store there is no await: writers of one
object follow one another, and a patch never meets a conflict unless it names a revision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http import off_loop
from gangline.cluster.server.http.auth import Caller
from gangline.cluster.server.http.request_context import (
    RequestContext,
    answer,
    encode_json,
)
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.rules import (
    admission,
    crds,
    field_rules,
    metadata,
    pod_fields,
    session_rule,
    strategy,
)
from gangline.cluster.server.rules.pod_validation import EPHEMERAL, EPHEMERAL_FIELD
from gangline.cluster.server.store.events import Entry
from gangline.cluster.server.store.store import ConflictError
from gangline.cluster.server.verbs import field_managers
from gangline.cluster.server.verbs.reading import include_object
from gangline.cluster.server.wire import rendering

GENERATE_ATTEMPTS = 8
STATUS_PARTS = ("status", "approval")
"""Subresources that write the status; the approval of a signing request is a condition of it."""
PARTS = (*STATUS_PARTS, EPHEMERAL)
"""Subresources that are read and written as the object, of which they change a part."""
UPDATE_ATTEMPTS = 5
"""Of one update of a large object, which others may overtake."""


async def create(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer POST to a collection."""
    target = context.target
    if target.served.resource.namespaced and not target.namespace:
        raise status_errors.method_not_allowed("POST")
    body = await context.body()
    body = await _known(api, context, body)
    session_rule.check(context, body)
    warn_of_kind(context)
    if target.served.resource.kind == "CertificateSigningRequest":
        body["spec"] = {**(body.get("spec") or {}), **requester(context.user)}
    api.authorizer.check_gift(context.user, target, body)
    entry = await create_object(
        api,
        target,
        body,
        dry_run=context.dry_run,
        manager=field_managers.updater(context),
        size_bytes=context.body_bytes,
    )
    data = rendering.single(entry, target.served, context.form, include_object(context))
    return answer(data, status=201, warnings=context.warnings)


def requester(user: Caller) -> dict[str, Any]:
    """Return what the server writes into a signing request about who makes it."""
    return {"username": user.name, "groups": list(user.groups)}


def warn_of_kind(context: RequestContext) -> None:
    """Tell whoever creates an object on which nothing acts, or whose version is deprecated."""
    if context.target.served.deprecation:
        context.warnings.append(context.target.served.deprecation)
    if context.target.served.is_idle:
        resource = context.target.served.resource
        context.warnings.append(f"{resource.plural} are stored; nothing acts on them here")


async def create_object(
    api: ApiContext,
    target: RequestTarget,
    body: dict[str, Any],
    *,
    dry_run: bool = False,
    managed_fields: list[dict[str, Any]] | None = None,
    manager: field_managers.Manager | None = None,
    size_bytes: int = 0,
) -> Entry:
    """Create an object of the kind and namespace of ``target``; the name is the body's.

    What manages the object is given as ``managed_fields``, or follows from its ``manager``. ``size_bytes``
    of the body says whether it is shaped away from the event loop.

    Raises:
        StatusError: whatever the API server answers.
    """
    served = target.served
    attempts = 1 if (body.get("metadata") or {}).get("name") else GENERATE_ATTEMPTS
    while True:
        attempts -= 1
        obj = metadata.created(target, body)
        name = obj["metadata"]["name"]
        key = (target.collection, target.namespace, name)
        if api.store.latest(*key) is None:
            break
        if attempts == 0:
            raise status_errors.already_exists(served, name)
    admission.check_namespace(api.store, target, name)
    crds.check_lasting(api, target)
    obj = await off_loop.run_sized(size_bytes, strategy.first_state, served, obj)
    obj = admission.admit(api, target, obj)
    await off_loop.run_sized(size_bytes, strategy.check, served, obj, None)
    admission.check_namespace(api.store, target, name)  # once more: it may have gone meanwhile
    if manager is not None:
        managed_fields = await off_loop.run_sized(size_bytes, field_managers.created, served, obj, manager)
    stored = rendering.in_order(api.registry.storage_row(served), obj)
    if managed_fields:
        stored["metadata"]["managedFields"] = managed_fields
    with api.quotas.charge(target, stored):
        if dry_run:
            return Entry(0, encode_json(stored), 0, stored)
        try:
            return await api.store.put(key, stored, None)
        except ConflictError:
            raise status_errors.already_exists(served, name) from None


async def _known(api: ApiContext, context: RequestContext, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body without the fields that its kind does not have; warnings are noted."""
    body, warnings = await off_loop.run_sized(
        context.body_bytes,
        strategy.known_fields,
        context.target.served,
        body,
        context.field_validation,
        context.duplicates,
    )
    context.warnings += warnings
    warn_of_pods(api, context, body)
    return body


def warn_of_pods(api: ApiContext, context: RequestContext, body: dict[str, Any]) -> None:
    """Note what the pods of a body ask for in vain."""
    if not context.target.subresource:
        report = api.paths.state / "agent.json"
        context.warnings += pod_fields.warnings(context.target.served.resource, body, report)


async def replace(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer PUT of an object or of its status."""
    target = context.target
    body = await context.body()
    body = await _known(api, context, body)
    if api.store.latest(*target.key) is None:
        raise status_errors.not_found(target.served, target.name)
    if target.served.is_custom and not (body.get("metadata") or {}).get("resourceVersion"):
        raise status_errors.invalid(
            target.served,
            target.name,
            [field_rules.required("metadata.resourceVersion", "must be specified for an update")],
        )

    def next_of(old: dict[str, Any]) -> dict[str, Any]:
        return written_state(api, context, target, old, body)

    return updated(context, await update_object(api, context, next_of))


async def update_object(
    api: ApiContext,
    context: RequestContext,
    next_of: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    target: RequestTarget | None = None,
) -> Entry:
    """Store what ``next_of`` makes of the newest state of the context's object.

    Where object and body are large that takes a while, away from the event loop; if somebody else has written
    the object meanwhile it is done again, as a real API server does.

    Raises:
        StatusError: 404, 409 when others are always faster, and what ``next_of`` raises.
    """
    target = target or context.target
    for _ in range(UPDATE_ATTEMPTS):
        old = api.store.latest(*target.key)
        if old is None:
            raise status_errors.not_found(target.served, target.name)
        before = rendering.object_at(old, target.served)
        obj = await off_loop.run_sized(context.body_bytes + len(old.data), next_of, before)
        session_rule.check(context, before, obj)
        api.authorizer.check_gift(context.user, target, obj)
        if api.store.latest(*target.key) is old:
            return await store_next(api, target, old, obj, dry_run=context.dry_run)
    raise status_errors.conflict(target.served, target.name)


def updated(context: RequestContext, entry: Entry) -> web.Response:
    """Return the answer to a change: the object as it is stored now."""
    data = rendering.single(entry, context.target.served, context.form, include_object(context))
    return answer(data, warnings=context.warnings)


def written_state(
    api: ApiContext,
    context: RequestContext,
    target: RequestTarget,
    old: dict[str, Any],
    body: dict[str, Any],
) -> dict[str, Any]:
    """Return what ``next_state`` makes of the old state, with the caller as manager of what has changed.

    Raises:
        StatusError: as ``next_state``.
    """
    served = context.target.served
    new = next_state(api, target, old, body)
    given = (body.get("metadata") or {}).get("managedFields")
    entries = field_managers.updated(served, old, new, field_managers.updater(context), given)
    if entries:
        new["metadata"]["managedFields"] = entries
    else:
        new["metadata"].pop("managedFields", None)
    return new


def next_state(
    api: ApiContext, target: RequestTarget, old: dict[str, Any], body: dict[str, Any]
) -> dict[str, Any]:
    """Return what an update of the object, or of its status, makes of the old state.

    Raises:
        StatusError: 400, 409 or 422.
    """
    served = target.served
    new = metadata.updated(target, old, body)
    if target.subresource in STATUS_PARTS:
        kept = {key: value for key, value in old.items() if key not in ("status", "metadata")}
        status = {"status": new["status"]} if "status" in new else {}
        if served.is_custom:
            meta = dict(old["metadata"])
        else:
            meta = new["metadata"]
            if "ownerReferences" in old["metadata"]:
                meta["ownerReferences"] = old["metadata"]["ownerReferences"]
        new = rendering.in_order(served, {**kept, "metadata": meta, **status})
    else:
        if target.subresource == EPHEMERAL:
            added = {EPHEMERAL_FIELD: (new.get("spec") or {}).get(EPHEMERAL_FIELD)}
            new["spec"] = {**old["spec"], **({} if added[EPHEMERAL_FIELD] is None else added)}
        if "status" in served.subresources:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        if target.subresource != "finalize":
            admission.keep_on_update(served, old, new)
        new = strategy.later_state(served, new, old)
    admission.admit_update(api, target, old, new)
    strategy.check(served, new, old, subresource=target.subresource)
    metadata.count_generation(served, old, new)
    return new


async def store_next(
    api: ApiContext, target: RequestTarget, old: Entry, obj: dict[str, Any], *, dry_run: bool = False
) -> Entry:
    """Store the next state of an object, unless it is the same; remove one whose deletion is complete."""
    before = rendering.object_at(old, target.served)
    if metadata.is_same(before, obj):
        await api.store.settled(target.key)
        return old
    if dry_run:
        obj["metadata"]["resourceVersion"] = str(old.revision)
        return Entry(old.revision, encode_json(obj), 0, obj)
    stored = rendering.in_order(api.registry.storage_row(target.served), obj)
    if is_deletion_complete(stored):
        return await api.store.remove(target.key, stored, old)
    return await api.store.put(target.key, stored, old)


def is_deletion_complete(obj: dict[str, Any]) -> bool:
    """Whether nothing keeps an object that is being deleted: neither finalizer nor grace."""
    meta = obj["metadata"]
    return (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
        and not (obj["kind"] == "Namespace" and (obj.get("spec") or {}).get("finalizers"))
    )
