"""DELETE of one object and of collections: preconditions, grace, finalizers, propagation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from aiohttp import web

from gangline import clock
from gangline.api import resources as r
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.request_context import RequestContext, answer, encode_json, is_dry_run
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.rules import crds
from gangline.cluster.server.store.events import Entry
from gangline.cluster.server.verbs.reading import namespace_of, select
from gangline.cluster.server.verbs.writing import is_deletion_complete
from gangline.cluster.server.wire import rendering

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
GRACE_DEFAULT_S = 30
DELETES_AT_ONCE_MAX = 200


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete.

    Attributes:
        grace_period_s: seconds; None is the pod's own.
        propagation: ``Background``, ``Foreground``, ``Orphan`` or empty for the kind's default.
        uid: precondition.
        resource_version: precondition.
        dry_run: store nothing.
    """

    grace_period_s: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


async def read_options(context: RequestContext) -> DeleteOptions:
    """Return the options of the body or, where it has none, of the query.

    Raises:
        StatusError: 400 or 422.
    """
    body = await context.body_as("meta/v1.DeleteOptions")
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds")
    if grace is None:
        grace = context.number("gracePeriodSeconds")
    propagation = body.get("propagationPolicy") or context.query.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents")
    if orphan is None and "orphanDependents" in context.query:
        orphan = context.flag("orphanDependents")
    if orphan is not None:
        if propagation:
            raise status_errors.unprocessable(
                "propagationPolicy: Invalid value: orphanDependents and propagationPolicy cannot be both set"
            )
        propagation = "Orphan" if orphan else "Background"
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        raise status_errors.unprocessable(
            f'propagationPolicy: Unsupported value: "{propagation}": supported values: '
            '"Foreground", "Background", "Orphan"'
        )
    return DeleteOptions(
        grace_period_s=None if grace is None else (1 if grace < 0 else grace),
        propagation=propagation,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=is_dry_run(body.get("dryRun") or []) or context.dry_run,
    )


async def delete(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer DELETE of an object."""
    target = context.target
    options = _with_default(context, await read_options(context))
    entry, gone = await delete_object(api, target, options)
    meta = entry.obj["metadata"]
    if gone and not target.served.returns_deleted:  # clients look at the kind
        details = {
            "name": target.name,
            "group": target.served.resource.group,
            "kind": target.served.resource.plural,
            "uid": meta["uid"],
        }
        details = {key: value for key, value in details.items() if value}
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }
        return answer(encode_json(status))
    return answer(rendering.object_bytes(entry, target.served), warnings=context.warnings)


def _with_default(context: RequestContext, options: DeleteOptions) -> DeleteOptions:
    """Return the options with the kind's default: alone among the kinds, batch/v1 Jobs leave their pods."""
    if options.propagation or context.target.served.resource != r.JOBS:
        return options
    context.warnings.append(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
        "remove them or set propagationPolicy=Orphan to suppress this warning"
    )
    return replace(options, propagation="Orphan")


async def delete_object(api: ApiContext, target: RequestTarget, options: DeleteOptions) -> tuple[Entry, bool]:
    """Delete an object, or mark it as being deleted; returns its last state and whether it is gone.

    Raises:
        StatusError: 404, or 409 when a precondition does not hold.
    """
    old = api.store.latest(*target.key)
    if old is None:
        raise status_errors.not_found(target.served, target.name)
    served, before = target.served, old.obj
    meta = dict(before["metadata"])
    if options.uid and options.uid != meta["uid"]:
        cause = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {meta['uid']}"
        raise status_errors.conflict(served, target.name, cause)
    if options.resource_version and options.resource_version != meta["resourceVersion"]:
        cause = (
            f"Precondition failed: ResourceVersion in precondition: {options.resource_version}, "
            f"ResourceVersion in object meta: {meta['resourceVersion']}"
        )
        raise status_errors.conflict(served, target.name, cause)
    after = {**before, "metadata": meta}
    _mark(target, after, options)
    if options.dry_run:
        return Entry(old.revision, encode_json(after), 0, after), is_deletion_complete(after)
    if is_deletion_complete(after):
        return await api.store.remove(target.key, after, old), True
    if after["metadata"] == before["metadata"] and after.get("status") == before.get("status"):
        await api.store.settled(target.key)
        return old, False
    return await api.store.put(target.key, after, old), False


def _mark(target: RequestTarget, obj: dict[str, Any], options: DeleteOptions) -> None:
    """Set on ``obj`` what says that it is being deleted; its metadata is changed in place."""
    meta = obj["metadata"]
    resource = target.served.resource
    grace_s = _grace_of(obj, options) if resource == r.PODS else 0
    finalizers = list(meta.get("finalizers") or ())
    if options.propagation:
        wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(options.propagation)
        finalizers = [f for f in finalizers if f not in (FOREGROUND, ORPHAN)] + ([wanted] if wanted else [])
    if resource == r.CRDS and crds.FINALIZER not in finalizers and "deletionTimestamp" not in meta:
        finalizers.append(crds.FINALIZER)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    if "deletionTimestamp" in meta:
        left_s = meta.get("deletionGracePeriodSeconds") or 0
        if grace_s >= left_s:
            return
    elif target.served.has_generation:
        meta["generation"] = meta.get("generation", 1) + 1
    meta["deletionTimestamp"] = clock.format_time(clock.now() + timedelta(seconds=grace_s))
    meta["deletionGracePeriodSeconds"] = grace_s
    if resource == r.NAMESPACES:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}


def _grace_of(pod: dict[str, Any], options: DeleteOptions) -> int:
    """Return the seconds that a pod gets; none when no process can be running."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace_period_s is not None:
        return options.grace_period_s
    grace = spec.get("terminationGracePeriodSeconds")
    return GRACE_DEFAULT_S if grace is None else int(grace)


async def delete_collection(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer DELETE of a collection: every object that matches, as one DELETE each."""
    target = context.target
    options = _with_default(context, await read_options(context))
    labels, fields = context.selectors()
    entries = select(api.store, target.collection, namespace_of(context), labels, fields)
    await delete_entries(api, target, entries, options)
    metadata: dict[str, Any] = {"resourceVersion": str(api.store.revision)}
    body = await rendering.listing(entries, target.served, "object", "Object", metadata)
    return answer(body, warnings=context.warnings)


async def delete_entries(
    api: ApiContext, target: RequestTarget, entries: list[Entry], options: DeleteOptions
) -> None:
    """Delete objects of one kind; one that is gone already is fine."""
    for start in range(0, len(entries), DELETES_AT_ONCE_MAX):
        batch = (entry.obj["metadata"] for entry in entries[start : start + DELETES_AT_ONCE_MAX])
        targets = [RequestTarget(target.served, meta.get("namespace", ""), meta["name"]) for meta in batch]
        deletes = (delete_object(api, one, options) for one in targets)
        for outcome in await asyncio.gather(*deletes, return_exceptions=True):
            if isinstance(outcome, status_errors.StatusError) and outcome.code == 404:
                continue
            if isinstance(outcome, BaseException):
                raise outcome
