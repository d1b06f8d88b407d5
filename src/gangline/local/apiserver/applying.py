"""Server-side apply: PATCH with ``application/apply-patch+yaml``.

An object that does not exist is created; fields that the manager applied before and now leaves out go away
unless another manager applied them too; changing what another manager applied is a conflict, or takes it over
by force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gangline import clock
from gangline.local.apiserver import (
    apply_fields,
    failures,
    metadata,
    off_loop,
    rendering,
    session_rule,
    shaping,
    writing,
)
from gangline.local.apiserver.apply_fields import Tree
from gangline.local.apiserver.apply_shapes import shape_of
from gangline.local.apiserver.context import ApiContext
from gangline.local.apiserver.exchange import Exchange, answer, decode_yaml
from gangline.local.apiserver.reading import include_object
from gangline.local.apiserver.registry import Target
from gangline.local.store_events import Entry

MANAGER_MAX = 128


@dataclass(frozen=True, slots=True)
class Manager:
    """Who applies, to what part: two managers when the subresources differ."""

    name: str
    subresource: str

    def owns(self, entry: dict[str, Any]) -> bool:
        """Whether an entry of ``managedFields`` is this manager's."""
        return entry.get("manager") == self.name and entry.get("subresource", "") == self.subresource


async def apply(api: ApiContext, exchange: Exchange) -> web.Response:
    """Answer an apply patch: 201 when the object is created, else 200."""
    target = exchange.target
    manager = _manager(exchange)
    raw = await exchange.raw_body()
    applied = await off_loop.run_sized(len(raw), decode_yaml, raw)
    applied = _checked(exchange, applied)
    if api.store.latest(*target.key) is None:
        entry, status = await _create(api, exchange, applied, manager), 201
    else:
        plain = Target(target.served, target.namespace, target.name)
        entry = await writing.update_object(
            api, exchange, lambda live: _next_state(api, exchange, applied, manager, live), target=plain
        )
        status = 200
    data = rendering.single(entry, target.served, exchange.form, include_object(exchange))
    return answer(data, status=status, warnings=exchange.warnings)


def _manager(exchange: Exchange) -> Manager:
    name = exchange.query.get("fieldManager", "")
    if not name or len(name) > MANAGER_MAX:
        rule = "is required for apply patch" if not name else f"may not be longer than {MANAGER_MAX}"
        raise failures.unprocessable(f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {rule}')
    return Manager(name, exchange.target.subresource)


def _checked(exchange: Exchange, applied: Any) -> dict[str, Any]:
    """Return the manifest with its unknown fields dropped and its name filled in.

    Raises:
        ApiFailure: 400.
    """
    target = exchange.target
    if not isinstance(applied, dict) or not isinstance(applied.get("metadata") or {}, dict):
        raise failures.bad_request("the manifest to apply is no object with metadata")
    if not applied.get("kind") or not applied.get("apiVersion"):
        raise failures.bad_request("apiVersion and kind must be set in a manifest to apply")
    meta = applied.get("metadata") or {}
    if meta.get("managedFields"):
        raise failures.bad_request("metadata.managedFields must be nil")
    metadata.check_type(target, applied)
    metadata.check_place(target, meta)
    kept, warnings = shaping.known_fields(target.served, applied, exchange.field_validation)
    exchange.warnings += warnings
    if target.subresource == "status":
        kept = {key: kept[key] for key in ("apiVersion", "kind", "metadata", "status") if key in kept}
    elif "status" in target.served.subresources:
        kept = {key: value for key, value in kept.items() if key != "status"}
    place = {"namespace": target.namespace} if target.served.resource.namespaced else {}
    return {**kept, "metadata": {**place, "name": target.name, **(kept.get("metadata") or {})}}


async def _create(api: ApiContext, exchange: Exchange, applied: dict[str, Any], manager: Manager) -> Entry:
    target, meta = exchange.target, applied["metadata"]
    if target.subresource:
        raise failures.not_found(target.served, target.name)
    if meta.get("uid") or meta.get("resourceVersion"):
        raise failures.conflict(target.served, target.name, "the object does not exist any more")
    session_rule.check(exchange, applied)
    owned = apply_fields.owned_fields(applied, shape_of(target.served))
    fields = [_entry(manager, target, owned)]
    place = Target(target.served, target.namespace)
    return await writing.create_object(
        api,
        place,
        applied,
        dry_run=exchange.dry_run,
        managed_fields=fields,
        size_bytes=exchange.body_bytes,
    )


def _next_state(
    api: ApiContext, exchange: Exchange, applied: dict[str, Any], manager: Manager, live: dict[str, Any]
) -> dict[str, Any]:
    """Return what applying makes of the object as it is.

    Raises:
        ApiFailure: 409, a conflict with another manager; 422.
    """
    target = exchange.target
    shape = shape_of(target.served)
    entries: list[dict[str, Any]] = live["metadata"].get("managedFields") or []
    mine = next((entry for entry in entries if manager.owns(entry)), None)
    others = [entry for entry in entries if not manager.owns(entry)]
    clashes = _conflicts(applied, live, target, others)
    if clashes and not exchange.flag("force"):
        raise _conflict_failure(target, clashes)
    others = [_without_clash(entry, clashes) for entry in others]
    others = [entry for entry in others if entry["fieldsV1"]]

    owned = apply_fields.owned_fields(applied, shape)
    before = (mine or {}).get("fieldsV1") or {}
    kept = apply_fields.union([entry["fieldsV1"] for entry in others])
    body = apply_fields.merged(live, applied, shape)
    body = apply_fields.without(body, apply_fields.minus(before, owned), kept, shape)
    obj = writing.next_state(api, target, live, _with_revision(body, applied))
    if mine is None or owned != before:
        mine = _entry(manager, target, owned)
    obj["metadata"]["managedFields"] = [*others, mine]
    return obj


def _with_revision(body: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    """Return the body with a revision only when the manifest names one: then it is a precondition."""
    meta = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    if revision := applied["metadata"].get("resourceVersion"):
        meta["resourceVersion"] = revision
    return {**body, "metadata": meta}


def _entry(manager: Manager, target: Target, owned: Tree) -> dict[str, Any]:
    entry = {
        "manager": manager.name,
        "operation": "Apply",
        "apiVersion": target.served.resource.api_version,
        "time": clock.format_time(clock.now()),
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
    }
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def _conflicts(
    applied: dict[str, Any], live: dict[str, Any], target: Target, others: list[dict[str, Any]]
) -> dict[str, Tree]:
    """Return, by manager, the fields of others that the manifest would change."""
    shape = shape_of(target.served)
    found = {}
    for entry in others:
        tree = apply_fields.conflicts(applied, live, shape, entry.get("fieldsV1") or {})
        if tree:
            found[str(entry.get("manager"))] = tree
    return found


def _without_clash(entry: dict[str, Any], clashes: dict[str, Tree]) -> dict[str, Any]:
    clash = clashes.get(str(entry.get("manager")))
    if clash is None:
        return entry
    return {**entry, "fieldsV1": apply_fields.minus(entry["fieldsV1"], clash)}


def _conflict_failure(target: Target, clashes: dict[str, Tree]) -> failures.ApiFailure:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{name}"', "field": path}
        for name, tree in clashes.items()
        for path in apply_fields.paths(tree)
    ]
    count = len(causes)
    lines = "\n".join(f"- {cause['message']}: {cause['field']}" for cause in causes)
    message = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: {lines}"
    failure = failures.conflict(target.served, target.name)
    failure.message = message
    failure.details["causes"] = causes
    return failure
