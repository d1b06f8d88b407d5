"""Acting as somebody else: the headers ``Impersonate-User``, ``-Group``, ``-Uid`` and ``-Extra-KEY``.

Whoever sends them must be allowed to ``impersonate`` each of what they name; the request is then answered as
if the other had sent it. ``kubectl --as`` sends them.
Source: staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

from multidict import MultiMapping

from gangline.cluster.server import status_errors
from gangline.cluster.server.http.auth import Caller, service_account
from gangline.cluster.server.rbac.authorizer import Authorizer
from gangline.cluster.server.rbac.rules import AccessAttributes
from gangline.cluster.server.status_errors import StatusError

USER, EXTRA = "Impersonate-User", "impersonate-extra-"
_AUTHENTICATED, _ANONYMOUS = "system:authenticated", "system:anonymous"
_ACCOUNT_PREFIX = "system:serviceaccount:"
_AUTHENTICATION = "authentication.k8s.io"


def act_as(authorizer: Authorizer, caller: Caller, headers: MultiMapping[str]) -> Caller:
    """Return whom the headers name, the caller itself where there are none.

    Raises:
        StatusError: 403 when the caller may not act as that; 400 when no user is named.
    """
    name = headers.get(USER)
    if name is None:
        if "Impersonate-Group" in headers or "Impersonate-Uid" in headers:
            raise status_errors.bad_request("requested impersonation without impersonating a user")
        return caller
    for attributes in _wanted(name, headers):
        if not authorizer.may(caller, attributes):
            raise _forbidden(caller, attributes)
    groups = tuple(headers.getall("Impersonate-Group", ()))
    named = _named(name)
    if named.namespace is not None and not groups:
        return named
    if name != _ANONYMOUS and _AUTHENTICATED not in groups:
        groups += (_AUTHENTICATED,)
    return replace(named, groups=groups)


def _named(name: str) -> Caller:
    if name.startswith(_ACCOUNT_PREFIX) and name.count(":") == 3:
        namespace, _, account = name.removeprefix(_ACCOUNT_PREFIX).partition(":")
        return service_account(namespace, account)
    return Caller(name, ())


def _wanted(name: str, headers: MultiMapping[str]) -> Iterator[AccessAttributes]:
    named = _named(name)
    if named.namespace is not None:
        account = name.rpartition(":")[2]
        yield AccessAttributes(
            "impersonate", resource="serviceaccounts", namespace=named.namespace, name=account
        )
    else:
        yield AccessAttributes("impersonate", resource="users", name=name)
    for group in headers.getall("Impersonate-Group", ()):
        yield AccessAttributes("impersonate", resource="groups", name=group)
    for uid in headers.getall("Impersonate-Uid", ()):
        yield AccessAttributes("impersonate", _AUTHENTICATION, "uids", name=uid)
    for key, value in headers.items():
        if key.lower().startswith(EXTRA):
            extra = unquote(key[len(EXTRA) :].lower())
            yield AccessAttributes("impersonate", _AUTHENTICATION, "userextras", extra, name=value)


def _forbidden(caller: Caller, attributes: AccessAttributes) -> StatusError:
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    subresource = f"/{attributes.subresource}" if attributes.subresource else ""
    message = (
        f'{attributes.resource} "{attributes.name}" is forbidden: User "{caller.name}" cannot impersonate '
        f'resource "{attributes.resource}{subresource}" in API group "{attributes.group}" {scope}'
    )
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    return StatusError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
