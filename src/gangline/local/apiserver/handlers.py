"""Every request: who asks, what for, may they, and who answers.

There is always an answer, also to our own faults.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable

from aiohttp import web

from gangline.local.apiserver import deleting, failures, logs, reading, reviews, writing
from gangline.local.apiserver.admission import SERVICE_ACCOUNT_COLLECTION
from gangline.local.apiserver.auth import ADMIN, User
from gangline.local.apiserver.context import ApiContext
from gangline.local.apiserver.documents import OPEN_PATHS, Documents
from gangline.local.apiserver.exchange import Exchange, failure_answer
from gangline.local.apiserver.failures import ApiFailure
from gangline.local.apiserver.registry import Target
from gangline.local.apiserver.served import SUBRESOURCE_VERBS
from gangline.local.apiserver.subresources import SUBRESOURCES
from gangline.local.apiserver.watching import WatchStream
from gangline.local.store import ConflictError, StoreError

Handler = Callable[[ApiContext, Exchange], Awaitable[web.StreamResponse]]

_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_SUBRESOURCE_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}
_KNOWN_UNSERVED = {
    "exec": "pods/exec",
    "attach": "pods/attach",
    "portforward": "pods/portforward",
    "proxy": "the proxy subresource",
    "resize": "pods/resize",
    "ephemeralcontainers": "pods/ephemeralcontainers",
    "approval": "certificate signing",
}


class Handlers:
    """The request handlers of one server."""

    def __init__(self, api: ApiContext) -> None:
        self._api = api
        self._documents = Documents(api)

    async def handle_local(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request on the Unix socket: whoever can open it is the administrator."""
        return await self._handle(request, ADMIN)

    async def handle_remote(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request on a TCP port: a token says who asks."""
        return await self._handle(request, None)

    async def _handle(self, request: web.BaseRequest, user: User | None) -> web.StreamResponse:
        try:
            try:
                return await self._answer(request, user)
            except ConflictError:
                raise failures.internal_error("a write was overtaken by another one; try again") from None
            except StoreError as error:
                raise failures.internal_error(str(error)) from error
        except ApiFailure as failure:
            return failure_answer(failure)
        except web.HTTPException as error:
            return failure_answer(
                ApiFailure(error.status, error.reason.replace(" ", ""), error.text or error.reason)
            )
        except Exception as error:  # noqa: BLE001 - a client must get an answer to our own faults, too
            import structlog

            structlog.get_logger().error(
                "request failed",
                method=request.method,
                path=request.path,
                traceback=traceback.format_exc(limit=-8),
            )
            return failure_answer(failures.internal_error(f"{type(error).__name__}: {error}"))

    def _authenticate(self, request: web.BaseRequest, user: User | None, path: str) -> User | None:
        """Return who asks, None for nobody on an open path.

        Raises:
            ApiFailure: 401.
        """
        authorization = request.headers.get("Authorization")
        if authorization:
            user = self._api.authenticator.user_of(authorization)
            if user is None or not self._is_there(user):
                raise failures.unauthorized()
        if user is None and path not in OPEN_PATHS:
            raise failures.unauthorized()
        return user

    def _is_there(self, user: User) -> bool:
        """Whether the service account still exists; its tokens end with it."""
        if user.namespace is None:
            return True
        name = user.name.rpartition(":")[2]
        return self._api.store.get(SERVICE_ACCOUNT_COLLECTION, user.namespace, name) is not None

    async def _answer(self, request: web.BaseRequest, user: User | None) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        user = self._authenticate(request, user, path)
        document = self._documents.answer(request, path) if request.method == "GET" else None
        if document is not None:
            return document
        assert user is not None, "only documents are open to nobody"
        target = self._api.registry.parse(path)
        exchange = Exchange(request, user, target, request.query)
        verb = verb_of(exchange)
        self._authorize(exchange, verb)
        return await self._route(exchange, verb)

    def _authorize(self, exchange: Exchange, verb: str) -> None:
        target, user = exchange.target, exchange.user
        namespace = target.namespace
        if not target.served.resource.namespaced and target.served.resource.plural == "namespaces":
            namespace = target.name
        if not user.may(verb, target.served, namespace):
            raise failures.forbidden(
                user.name, verb, target.served, target.namespace, target.name, target.subresource
            )

    async def _route(self, exchange: Exchange, verb: str) -> web.StreamResponse:
        target = exchange.target
        if not target.served.is_stored:
            return await reviews.create_review(self._api, exchange)
        if verb == "watch":
            return await WatchStream(self._api.store, exchange).run()
        if target.subresource and target.subresource != "status":
            if target.subresource == "log":
                return await logs.pod_log(self._api, exchange)
            return await SUBRESOURCES[target.subresource, exchange.request.method](self._api, exchange)
        if verb == "get":
            return reading.get_object(self._api.store, exchange)
        if verb == "list":
            return reading.list_objects(self._api.store, exchange)
        return await _WRITERS[verb](self._api, exchange)


_WRITERS: dict[str, Handler] = {
    "create": writing.create,
    "update": writing.replace,
    "patch": writing.patch,
    "delete": deleting.delete,
    "deletecollection": deleting.delete_collection,
}


def verb_of(exchange: Exchange) -> str:
    """Return the API verb of a request.

    Raises:
        ApiFailure: 404 no such subresource, 405 a method that does not fit, 501 a part that is missing here.
    """
    target, method = exchange.target, exchange.request.method
    if target.subresource:
        return _subresource_verb(target, method)
    if target.name:
        verb = _OBJECT_VERBS.get(method)
    else:
        verb = _COLLECTION_VERBS.get(method)
    if verb is None or verb not in target.served.verbs:
        raise failures.method_not_allowed(method)
    if verb in ("list", "get") and exchange.flag("watch"):
        return "watch"
    return verb


def _subresource_verb(target: Target, method: str) -> str:
    name = target.subresource
    if name not in target.served.subresources:
        if name in _KNOWN_UNSERVED:
            raise failures.not_implemented(_KNOWN_UNSERVED[name])
        raise failures.no_such_path()
    verb = _SUBRESOURCE_VERBS.get(method)
    if verb is None or verb not in SUBRESOURCE_VERBS[name]:
        raise failures.method_not_allowed(method)
    if target.rest:
        raise failures.no_such_path()
    return verb
