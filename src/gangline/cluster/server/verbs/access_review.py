"""Questions about oneself and others that are answered and not stored: who am I, may I."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.auth import Caller, is_there, service_account
from gangline.cluster.server.http.request_context import RequestContext, answer, encode_json


async def create_review(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer POST of any of the review kinds."""
    resource = context.target.served.resource
    kind = resource.kind
    body = await context.body_as(f"{resource.group.partition('.')[0]}/v1.{kind}")
    spec = body.get("spec") or {}
    if kind == "SelfSubjectReview":
        status: dict[str, Any] = {"userInfo": user_info(context.user)}
    elif kind == "TokenReview":
        status = _token_status(api, str(spec.get("token") or ""))
    elif kind == "SelfSubjectAccessReview":
        status = _access_status(api, context.user, spec)
    elif kind in ("SubjectAccessReview", "LocalSubjectAccessReview"):
        status = _access_status(api, user_named(spec), spec)
    elif kind == "SelfSubjectRulesReview":
        status = _rules_status(context.user, str(spec.get("namespace") or ""))
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


def user_info(user: Caller) -> dict[str, Any]:
    """Return the user as the authentication API writes one."""
    return {"username": user.name, "groups": list(user.groups)}


def user_named(spec: dict[str, Any]) -> Caller:
    """Return the user that a review of somebody else names."""
    name = str(spec.get("user") or "")
    groups = tuple(spec.get("groups") or ())
    if name.startswith("system:serviceaccount:") and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        return service_account(namespace, account)
    return Caller(name, groups)


def _token_status(api: ApiContext, token: str) -> dict[str, Any]:
    user = api.authenticator.user_of_token(token)
    if user is None or not is_there(api.store, user):
        return {"authenticated": False, "error": "invalid bearer token"}
    return {"authenticated": True, "user": user_info(user), "audiences": ["https://kubernetes.default.svc"]}


def _access_status(api: ApiContext, user: Caller, spec: dict[str, Any]) -> dict[str, Any]:
    if user.is_admin:
        return {"allowed": True, "reason": "the administrator may do everything"}
    asked = spec.get("resourceAttributes")
    if not asked:
        return {"allowed": False, "reason": "only the administrator may use this path"}
    group, plural = asked.get("group") or "", asked.get("resource") or ""
    row = next(
        (row for row in api.registry.rows if (row.resource.group, row.resource.plural) == (group, plural)),
        None,
    )
    if row is None:
        return {"allowed": False, "reason": f"`{plural}` of group `{group}` is not served"}
    return {"allowed": user.may(str(asked.get("verb") or ""), row, asked.get("namespace") or "")}


def _rules_status(user: Caller, namespace: str) -> dict[str, Any]:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    own = user.is_admin or user.namespace == namespace
    return {
        "resourceRules": [everything] if own else [],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}] if user.is_admin else [],
        "incomplete": False,
    }
