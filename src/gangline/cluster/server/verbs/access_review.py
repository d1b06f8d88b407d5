"""Questions about oneself and others that are answered and not stored: who am I, may I."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from aiohttp import web

from gangline.cluster.account_tokens import API_AUDIENCE, AccountToken
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.auth import POD_COLLECTION, Caller, is_there, service_account
from gangline.cluster.server.http.request_context import RequestContext, answer, encode_json
from gangline.cluster.server.rbac.rules import AccessAttributes


async def create_review(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer POST of any of the review kinds."""
    resource = context.target.served.resource
    kind = resource.kind
    if context.form != "object":
        raise status_errors.not_acceptable()
    body = await context.body_as(f"{resource.group.partition('.')[0]}/v1.{kind}")
    spec = body.get("spec") or {}
    if kind == "SelfSubjectReview":
        status: dict[str, Any] = {"userInfo": user_info(api, context.user)}
    elif kind == "TokenReview":
        status = _token_status(api, str(spec.get("token") or ""), spec.get("audiences") or [API_AUDIENCE])
    elif kind == "SelfSubjectAccessReview":
        status = _access_status(api, context.user, spec)
    elif kind in ("SubjectAccessReview", "LocalSubjectAccessReview"):
        status = _access_status(api, user_named(spec), spec)
    elif kind == "SelfSubjectRulesReview":
        status = _rules_status(api, context.user, str(spec.get("namespace") or ""))
    else:
        raise status_errors.not_implemented(kind)
    result = {
        "kind": kind,
        "apiVersion": resource.api_version,
        "metadata": body.get("metadata") or {},
        "spec": spec,
        "status": status,
    }
    return answer(encode_json(result), status=201)


def user_info(api: ApiContext, user: Caller) -> dict[str, Any]:
    """Return the user as the authentication API writes one."""
    info: dict[str, Any] = {"username": user.name, "groups": list(user.groups)}
    if user.token is not None:
        if user.token.account_uid:
            info["uid"] = user.token.account_uid
        info["extra"] = {
            f"authentication.kubernetes.io/{key}": [value] for key, value in _extra(api, user.token)
        }
    return info


def _extra(api: ApiContext, token: AccountToken) -> Iterator[tuple[str, str]]:
    """Yield what a token belongs to: itself, its pod and the node of that."""
    yield "credential-id", f"JTI={token.id}"
    if not token.pod:
        return
    yield "pod-name", token.pod
    yield "pod-uid", token.pod_uid
    pod = api.store.get(POD_COLLECTION, token.namespace, token.pod)
    name = "" if pod is None else str((pod.obj.get("spec") or {}).get("nodeName") or "")
    node = api.store.get("/nodes", "", name)
    if node is not None:
        yield "node-name", name
        yield "node-uid", node.obj["metadata"]["uid"]


def user_named(spec: dict[str, Any]) -> Caller:
    """Return the user that a review of somebody else names."""
    name = str(spec.get("user") or "")
    groups = tuple(spec.get("groups") or ())
    if name.startswith("system:serviceaccount:") and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        return replace(service_account(namespace, account), groups=groups)
    return Caller(name, groups)


def _token_status(api: ApiContext, token: str, audiences: list[str]) -> dict[str, Any]:
    user = api.authenticator.user_of_token(token, audiences)
    if user is None or not is_there(api.store, user):
        return {"authenticated": False, "error": "invalid bearer token"}
    own = (API_AUDIENCE,) if user.token is None else user.token.audiences
    return {
        "authenticated": True,
        "user": user_info(api, user),
        "audiences": [audience for audience in audiences if audience in own],
    }


def _access_status(api: ApiContext, user: Caller, spec: dict[str, Any]) -> dict[str, Any]:
    if user.is_admin:
        return {"allowed": True, "reason": "the administrator may do everything"}
    return {"allowed": api.authorizer.may(user, _wanted(api, spec))}


def _wanted(api: ApiContext, spec: dict[str, Any]) -> AccessAttributes:
    """Return what a review asks about; a resource that is not served counts as one of a namespace."""
    asked = spec.get("resourceAttributes")
    if not asked:
        asked = spec.get("nonResourceAttributes") or {}
        return AccessAttributes(str(asked.get("verb") or ""), path=str(asked.get("path") or "/"))
    group, plural, subresource, namespace, name = (
        str(asked.get(key) or "") for key in ("group", "resource", "subresource", "namespace", "name")
    )
    kinds = {(row.resource.group, row.resource.plural): row.resource.namespaced for row in api.registry.rows}
    return AccessAttributes(
        str(asked.get("verb") or ""),
        group,
        plural,
        subresource,
        namespace,
        name,
        is_namespaced=kinds.get((group, plural), True),
    )


def _rules_status(api: ApiContext, user: Caller, namespace: str) -> dict[str, Any]:
    rules = api.authorizer.rules(user, namespace)
    return {
        "resourceRules": [rule for rule in rules if rule.get("resources")],
        "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
