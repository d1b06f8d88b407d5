"""binding, eviction, finalize, token and scale. (status is in writing.py, log in logs.py.)"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from aiohttp import web

from gangline import clock
from gangline.cluster.account_tokens import (
    API_AUDIENCE,
    LIFETIME_MAX_S,
    LIFETIME_MIN_S,
    LIFETIME_S,
    AccountToken,
)
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.auth import POD_COLLECTION
from gangline.cluster.server.http.request_context import RequestContext, answer, encode_json
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.rules import field_rules, metadata, session_rule
from gangline.cluster.server.rules.scale_values import read_path, write_path
from gangline.cluster.server.store.events import Entry
from gangline.cluster.server.verbs import patching, writing
from gangline.cluster.server.verbs.deleting import DeleteOptions, delete_object
from gangline.cluster.server.wire import rendering
from gangline.cluster.server.wire.field_types import message_type_errors
from gangline.cluster.server.wire.selectors import selector_text

_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _current(api: ApiContext, context: RequestContext) -> Entry:
    entry = api.store.latest(*context.target.key)
    if entry is None:
        raise status_errors.not_found(context.target.served, context.target.name)
    return entry


async def bind(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer POST of ``pods/binding``: the pod gets its node, once."""
    body = await context.body_as("core/v1.Binding")
    target = context.target
    node = (body.get("target") or {}).get("name")
    if not node:
        raise status_errors.invalid(
            target.served, target.name, [field_rules.required("target.name", "is required")]
        )
    old = _current(api, context)
    pod = old.obj
    meta = dict(pod["metadata"])
    spec = pod.get("spec") or {}
    given = body.get("metadata") or {}
    if given.get("uid") and given["uid"] != meta["uid"]:
        raise status_errors.conflict(target.served, target.name, f"Precondition failed: UID is {meta['uid']}")
    if "deletionTimestamp" in meta:
        raise status_errors.conflict(
            target.served, target.name, f"pod {target.name} is being deleted, cannot be assigned to a host"
        )
    if spec.get("nodeName"):
        raise status_errors.conflict(
            target.served, target.name, f'pod {target.name} is already assigned to node "{spec["nodeName"]}"'
        )
    if spec.get("schedulingGates"):
        raise status_errors.conflict(
            target.served, target.name, f"pod {target.name} has non-empty .spec.schedulingGates"
        )
    for key in ("annotations", "labels"):
        if given.get(key):
            meta[key] = {**(meta.get(key) or {}), **given[key]}
    status = dict(pod.get("status") or {})
    status["conditions"] = _with_condition(
        status.get("conditions") or [],
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": clock.format_time(clock.now())},
    )
    after = {**pod, "metadata": meta, "spec": {**spec, "nodeName": node}, "status": status}
    session_rule.check(context, after)  # a binding brings annotations, and moves a pod
    if not context.dry_run:
        await api.store.put(target.key, after, old)
    return answer(encode_json(_SUCCESS), status=201)


async def create_binding(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer POST of ``bindings``: as ``pods/binding``, with the name of the pod in the body alone."""
    body = await context.body_as("core/v1.Binding")
    pods = api.registry.find("", "v1", "pods")
    assert pods is not None
    name = str((body.get("metadata") or {}).get("name") or "")
    context.target = RequestTarget(pods, context.target.namespace, name, "binding")
    return await bind(api, context)


def _with_condition(conditions: list[dict[str, Any]], condition: dict[str, Any]) -> list[dict[str, Any]]:
    kept = [c for c in conditions if c.get("type") != condition["type"]]
    return [*kept, condition]


async def evict(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer POST of ``pods/eviction``: a delete; there are no disruption budgets here to ask."""
    body = await context.body_as("policy/v1.Eviction")
    options = body.get("deleteOptions") or {}
    preconditions = options.get("preconditions") or {}
    dry_run = context.dry_run or "All" in (options.get("dryRun") or ())
    old = _current(api, context)
    meta, revision = old.obj["metadata"], preconditions.get("resourceVersion") or ""
    is_meant = preconditions.get("uid") in (None, "", meta["uid"]) and revision in ("", str(old.revision))
    if is_meant and not dry_run and "deletionTimestamp" not in meta:
        status = dict(old.obj.get("status") or {})
        status["conditions"] = _with_condition(
            status.get("conditions") or [],
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
                "lastTransitionTime": clock.format_time(clock.now()),
            },
        )
        await api.store.put(context.target.key, {**old.obj, "status": status}, old)
        revision = ""
    await delete_object(
        api,
        context.target,
        DeleteOptions(
            grace_period_s=options.get("gracePeriodSeconds"),
            uid=preconditions.get("uid") or "",
            resource_version=revision,
            dry_run=dry_run,
        ),
    )
    return answer(encode_json(_SUCCESS), status=201)


async def finalize(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer PUT of ``namespaces/finalize``: only ``spec.finalizers`` is taken; the last one lets it go."""
    body = await context.body_as("core/v1.Namespace")
    old = _current(api, context)
    before = old.obj
    target = context.target
    metadata.updated(target, before, body)
    spec = {**(before.get("spec") or {})}
    spec["finalizers"] = (body.get("spec") or {}).get("finalizers") or []
    after = {**before, "metadata": dict(before["metadata"]), "spec": spec}
    entry = await writing.store_next(api, target, old, after, dry_run=context.dry_run)
    return answer(rendering.object_bytes(entry, target.served))


async def request_token(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer POST of ``serviceaccounts/token``."""
    body = await context.body_as("authentication/v1.TokenRequest")
    account = _current(api, context)
    target = context.target
    now = clock.now()
    spec = body.get("spec") or {}
    lifetime_s = _lifetime_s(context, spec.get("expirationSeconds"))
    pod = _bound_pod(api, context, spec.get("boundObjectRef"))
    audiences = tuple(spec.get("audiences") or (API_AUDIENCE,))
    token = AccountToken(
        target.namespace,
        target.name,
        int(now.timestamp()) + lifetime_s,
        pod=pod.get("name", ""),
        pod_uid=pod.get("uid", ""),
        account_uid=account.obj["metadata"]["uid"],
        audiences=audiences,
        issued_s=int(now.timestamp()),
        id=str(uuid.uuid4()),
    )
    result = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": target.name,
            "namespace": target.namespace,
            "creationTimestamp": clock.format_time(now),
        },
        "spec": {
            "audiences": list(audiences),
            "expirationSeconds": lifetime_s,
            "boundObjectRef": spec.get("boundObjectRef"),
        },
        "status": {
            "token": api.authenticator.tokens.sign(token),
            "expirationTimestamp": clock.format_time(now + timedelta(seconds=lifetime_s)),
        },
    }
    return answer(encode_json(result), status=201)


def _lifetime_s(context: RequestContext, asked_s: int | None) -> int:
    """Return how long a token is to live.

    Raises:
        StatusError: 422.
    """
    lifetime_s = LIFETIME_S if asked_s is None else asked_s
    if LIFETIME_MIN_S <= lifetime_s <= LIFETIME_MAX_S:
        return lifetime_s
    rule = (
        "may not specify a duration less than 10 minutes"
        if lifetime_s < LIFETIME_MIN_S
        else "may not specify a duration larger than 2^32 seconds"
    )
    error = field_rules.invalid("spec.expirationSeconds", lifetime_s, rule)
    raise status_errors.invalid(context.target.served, context.target.name, [error])


def _bound_pod(api: ApiContext, context: RequestContext, reference: dict[str, Any] | None) -> dict[str, Any]:
    """Return the metadata of the pod that a token is bound to; empty for none.

    Raises:
        StatusError: 404, 409 another pod has the name now, 501 for what is no pod.
    """
    if not reference:
        return {}
    if reference.get("kind") != "Pod":
        raise status_errors.not_implemented(f"a token bound to a {reference.get('kind') or 'nameless kind'}")
    name = str(reference.get("name") or "")
    found = api.store.get(POD_COLLECTION, context.target.namespace, name)
    if found is None:
        details = {"name": name, "kind": "pods"}
        raise status_errors.StatusError(404, "NotFound", f'pods "{name}" not found', details)
    meta: dict[str, Any] = found.obj["metadata"]
    if reference.get("uid") not in (None, "", meta["uid"]):
        message = (
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record"
        )
        raise status_errors.conflict(context.target.served, context.target.name, message)
    return meta


def scale_of(context: RequestContext, entry: Entry) -> dict[str, Any]:
    """Return the ``Scale`` of an object."""
    obj = entry.obj
    paths = context.target.served.scale_paths or {}
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": read_path(obj, paths.get("statusReplicasPath", "")) or 0}
    if label_path := paths.get("labelSelectorPath"):
        selector = read_path(obj, label_path) or ""
        status["selector"] = selector if isinstance(selector, str) else selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": read_path(obj, paths.get("specReplicasPath", "")) or 0},
        "status": status,
    }


async def scale(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer GET, PUT and PATCH of ``scale``: the replicas of an object at the place that its CRD names."""
    target = context.target
    if context.request.method == "GET":
        found = api.store.get(*target.key)
        if found is None:
            raise status_errors.not_found(target.served, target.name)
        return answer(encode_json(scale_of(context, found)))
    if context.request.method == "PUT":
        wanted = await context.body_as("autoscaling/v1.Scale")
        old = _current(api, context)
    else:
        kind = scale_patch_kind(context)
        document = patching.patch_document(await context.raw_body(), kind)
        old = _current(api, context)
        wanted = patching.apply_patch(target, kind, scale_of(context, old), document)
        if errors := message_type_errors("autoscaling/v1.Scale", wanted):
            raise status_errors.invalid(target.served, target.name, errors)
    replicas = (wanted.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        raise status_errors.unprocessable(
            f"spec.replicas: Invalid value: {replicas}: must be a whole number, 0 or more"
        )
    meta = wanted.get("metadata") or {}
    path = (target.served.scale_paths or {}).get("specReplicasPath", ".spec.replicas")
    body = write_path(rendering.object_at(old, target.served), path, replicas)
    given = {key: meta[key] for key in ("resourceVersion", "uid") if meta.get(key)}
    body["metadata"] = {**body["metadata"], **given}
    plain = RequestTarget(target.served, target.namespace, target.name)
    obj = writing.written_state(api, context, plain, rendering.object_at(old, target.served), body)
    session_rule.check(context, old.obj)
    entry = await writing.store_next(api, plain, old, obj, dry_run=context.dry_run)
    return answer(encode_json(scale_of(context, entry)))


def scale_patch_kind(context: RequestContext) -> str:
    """Return how a patch of ``scale`` is read; strategic is the same as merge, there are no lists in it."""
    kind = patching.PATCH_TYPES.get(context.content_type)
    if kind in ("merge", "strategic"):
        return "merge"
    if kind == "json":
        return "json"
    raise status_errors.unsupported_media_type(
        context.content_type, [name for name, kind in patching.PATCH_TYPES.items() if kind != "apply"]
    )


SUBRESOURCES = {
    ("binding", "POST"): bind,
    ("eviction", "POST"): evict,
    ("finalize", "PUT"): finalize,
    ("token", "POST"): request_token,
    ("scale", "GET"): scale,
    ("scale", "PUT"): scale,
    ("scale", "PATCH"): scale,
}
"""Handlers by subresource and method."""
