"""POST, PUT and PATCH.

Between reading the newest state and handing the next one to the store there is no await: writers of one
object follow one another, and a patch never meets a conflict unless it names a revision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from gangline.api.budgets import BODY
from gangline.api.decode import is_deeper
from gangline.local.apiserver import (
    admission,
    crds,
    failures,
    field_rules,
    metadata,
    off_loop,
    rendering,
    session_rule,
    shaping,
)
from gangline.local.apiserver.context import ApiContext
from gangline.local.apiserver.exchange import (
    Exchange,
    answer,
    decode_body,
    decode_plain,
    encode_json,
)
from gangline.local.apiserver.patch import PatchError, json_patch, merge_patch, strategic_merge
from gangline.local.apiserver.reading import include_object
from gangline.local.apiserver.registry import Target
from gangline.local.store import ConflictError
from gangline.local.store_events import Entry

GENERATE_ATTEMPTS = 8
UPDATE_ATTEMPTS = 5
"""Of one update of a large object, which others may overtake."""

PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


async def create(api: ApiContext, exchange: Exchange) -> web.Response:
    """Answer POST to a collection."""
    target = exchange.target
    if target.served.resource.namespaced and not target.namespace:
        raise failures.method_not_allowed("POST")
    body = await exchange.body()
    body = await _known(exchange, body)
    session_rule.check(exchange, body)
    entry = await create_object(api, target, body, dry_run=exchange.dry_run, size_bytes=exchange.body_bytes)
    data = rendering.single(entry, target.served, exchange.form, include_object(exchange))
    return answer(data, status=201, warnings=exchange.warnings)


async def create_object(
    api: ApiContext,
    target: Target,
    body: dict[str, Any],
    *,
    dry_run: bool = False,
    managed_fields: list[dict[str, Any]] | None = None,
    size_bytes: int = 0,
) -> Entry:
    """Create an object of the kind and namespace of ``target``; the name is the body's.

    ``size_bytes`` of the body says whether it is shaped away from the event loop.

    Raises:
        ApiFailure: whatever the API server answers.
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
            raise failures.already_exists(served, name)
    admission.check_namespace(api.store, target, name)
    crds.check_lasting(api, target)
    obj = await off_loop.run_sized(size_bytes, shaping.first_state, served, obj)
    obj = admission.admit(api, target, obj)
    await off_loop.run_sized(size_bytes, shaping.check, served, obj, None)
    admission.check_namespace(api.store, target, name)  # once more: it may have gone meanwhile
    stored = rendering.in_order(api.registry.storage_row(served), obj)
    if managed_fields:
        stored["metadata"]["managedFields"] = managed_fields
    if dry_run:
        return Entry(0, encode_json(stored), 0, stored)
    try:
        return await api.store.put(key, stored, None)
    except ConflictError:
        raise failures.already_exists(served, name) from None


async def _known(exchange: Exchange, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body without the fields that its kind does not have; warnings about them are noted."""
    body, warnings = await off_loop.run_sized(
        exchange.body_bytes, shaping.known_fields, exchange.target.served, body, exchange.field_validation
    )
    exchange.warnings += warnings
    return body


async def replace(api: ApiContext, exchange: Exchange) -> web.Response:
    """Answer PUT of an object or of its status."""
    target = exchange.target
    body = await exchange.body()
    body = await _known(exchange, body)
    if api.store.latest(*target.key) is None:
        raise failures.not_found(target.served, target.name)
    if target.served.is_custom and not (body.get("metadata") or {}).get("resourceVersion"):
        raise failures.invalid(
            target.served,
            target.name,
            [field_rules.required("metadata.resourceVersion", "must be specified for an update")],
        )

    def next_of(old: dict[str, Any]) -> dict[str, Any]:
        return next_state(api, target, old, body)

    return _updated(exchange, await update_object(api, exchange, next_of))


async def patch(api: ApiContext, exchange: Exchange) -> web.Response:
    """Answer PATCH of an object or of its status."""
    target = exchange.target
    kind = patch_kind(exchange)
    if kind == "apply":
        from gangline.local.apiserver.applying import apply

        return await apply(api, exchange)
    raw = await exchange.raw_body()
    document = await off_loop.run_sized(len(raw), patch_document, raw, kind)

    def next_of(before: dict[str, Any]) -> dict[str, Any]:
        after = apply_patch(target, kind, before, document)
        after, exchange.warnings = shaping.known_patched_fields(
            target.served, before, after, exchange.field_validation
        )
        return next_state(api, target, before, after)

    return _updated(exchange, await update_object(api, exchange, next_of))


def check_budget(obj: Any) -> None:
    """Refuse what a patch makes of an object if it is nested deeper than a body may be.

    Raises:
        ApiFailure: 422.
    """
    if is_deeper(obj, BODY.levels_max):
        raise failures.unprocessable(f"the patch nests values more than {BODY.levels_max} deep")


def patch_kind(exchange: Exchange) -> str:
    """Return ``json``, ``merge``, ``strategic`` or ``apply``.

    Raises:
        ApiFailure: 415.
    """
    content_type = exchange.content_type
    kind = PATCH_TYPES.get(content_type)
    accepted = list(PATCH_TYPES)
    if kind == "strategic" and exchange.target.served.is_custom:
        accepted.remove(content_type)
        kind = None
    if kind is None:
        raise failures.unsupported_media_type(content_type, accepted)
    return kind


def patch_document(raw: bytes, kind: str) -> Any:
    """Return the decoded patch.

    Raises:
        ApiFailure: 400.
    """
    return decode_plain(raw) if kind == "json" else decode_body(raw, "application/json")


def apply_patch(target: Target, kind: str, before: dict[str, Any], document: Any) -> dict[str, Any]:
    """Return the object with the patch applied.

    Raises:
        ApiFailure: 400 or 422.
    """
    try:
        if kind == "merge":
            after = merge_patch(before, document)
        elif kind == "json":
            after = json_patch(before, document)
            check_budget(after)  # the other kinds nest no deeper than the object and the patch
        else:
            after = strategic_merge(target.served.resource, before, document)
    except PatchError as error:
        if error.status == 400:
            raise failures.bad_request(str(error)) from None
        if error.status == 413:
            raise failures.too_large(str(error)) from None
        raise failures.unprocessable(str(error)) from None
    if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
        raise failures.unprocessable("the patch leaves no object with metadata")
    return after


async def update_object(
    api: ApiContext,
    exchange: Exchange,
    next_of: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    target: Target | None = None,
) -> Entry:
    """Store what ``next_of`` makes of the newest state of the exchange's object.

    Where object and body are large that takes a while, away from the event loop; if somebody else has written
    the object meanwhile it is done again, as a real API server does.

    Raises:
        ApiFailure: 404, 409 when others are always faster, and what ``next_of`` raises.
    """
    target = target or exchange.target
    for _ in range(UPDATE_ATTEMPTS):
        old = api.store.latest(*target.key)
        if old is None:
            raise failures.not_found(target.served, target.name)
        before = rendering.object_at(old, target.served)
        obj = await off_loop.run_sized(exchange.body_bytes + len(old.data), next_of, before)
        session_rule.check(exchange, before, obj)
        if api.store.latest(*target.key) is old:
            return await store_next(api, target, old, obj, dry_run=exchange.dry_run)
    raise failures.conflict(target.served, target.name)


def _updated(exchange: Exchange, entry: Entry) -> web.Response:
    data = rendering.single(entry, exchange.target.served, exchange.form, include_object(exchange))
    return answer(data, warnings=exchange.warnings)


def next_state(api: ApiContext, target: Target, old: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return what an update of the object, or of its status, makes of the old state.

    Raises:
        ApiFailure: 400, 409 or 422.
    """
    served = target.served
    new = metadata.updated(target, old, body)
    if target.subresource == "status":
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
        if "status" in served.subresources:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        if target.subresource != "finalize":
            admission.keep_on_update(served, old, new)
        new = shaping.later_state(served, new, old)
    admission.admit_update(api, target, old, new)
    shaping.check(served, new, old, subresource=target.subresource)
    metadata.count_generation(served, old, new)
    return new


async def store_next(
    api: ApiContext, target: Target, old: Entry, obj: dict[str, Any], *, dry_run: bool = False
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
