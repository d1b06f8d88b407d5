"""Every request: who asks, what for, may they, and who answers.

There is always an answer, also to our own faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from aiohttp import web

from gangline.api.budgets import BODY
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http import impersonation
from gangline.cluster.server.http.auth import ADMIN, Caller, is_there
from gangline.cluster.server.http.connections import ClientConnection
from gangline.cluster.server.http.fault_log import FaultLog
from gangline.cluster.server.http.load import LONG_ANSWER_BYTES, PIECE_BYTES, Load
from gangline.cluster.server.http.request_context import RequestContext, failure_answer
from gangline.cluster.server.memory import MemoryShares
from gangline.cluster.server.rbac.rules import AccessAttributes
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.resources import POD_METRICS, PROJECT_REQUESTS, PROJECTS, SUBRESOURCE_VERBS
from gangline.cluster.server.status_errors import StatusError
from gangline.cluster.server.store.store import ConflictError, ObjectTooLargeError, StoreError, StoreFullError
from gangline.cluster.server.streams import STREAMS, proxy
from gangline.cluster.server.verbs import access_review, deleting, logs, patching, projects, reading, writing
from gangline.cluster.server.verbs.documents import OPEN_PATHS, Documents
from gangline.cluster.server.verbs.metrics import Metrics
from gangline.cluster.server.verbs.subresources import SUBRESOURCES, create_binding
from gangline.cluster.server.verbs.watching import WatchStream
from gangline.kube.http_paths import PathAnswer

ANSWER_TIMEOUT_S = 60.0
"""A client that has not taken its answer by then is no longer there, or holds it only to hold it."""

Handler = Callable[[ApiContext, RequestContext], Awaitable[web.StreamResponse]]

_READS = ("GET", "HEAD")
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_SUBRESOURCE_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}
_PROXY_VERBS = {**_SUBRESOURCE_VERBS, "HEAD": "get", "OPTIONS": "get", "DELETE": "delete"}
_KNOWN_UNSERVED = {"resize": "pods/resize"}


class Handlers:
    """The request handlers of one server."""

    def __init__(self, api: ApiContext, memory: MemoryShares | None = None) -> None:
        self._api = api
        self._documents = Documents(api)
        self._metrics = Metrics(api)
        self._load = Load(memory)
        self._faults = FaultLog()

    async def handle_local(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request on the Unix socket: whoever can open it is the administrator."""
        return await self._handle(request, ADMIN, is_local=True)

    async def handle_remote(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request on a TCP port: a token says who asks."""
        return await self._handle(request, None, is_local=False)

    async def _handle(
        self, request: web.BaseRequest, user: Caller | None, *, is_local: bool
    ) -> web.StreamResponse:
        counted = self._api.counts.request(request.method, is_watch=_lasts(request))
        with ExitStack() as held, counted as answered:
            try:
                response = await self._outcome(request, user, held, is_local=is_local)
                answered.status = response.status
                if isinstance(response, web.Response) and (response.content_length or 0) > LONG_ANSWER_BYTES:
                    if request.method in _READS:  # what a write holds has room for its answer: it is done
                        size_bytes = response.content_length or 0
                        held.enter_context(self._load.answer(user, size_bytes, is_local=is_local))
                    await self._send_long(request, response)
                return response
            except StatusError as failure:
                answered.status = failure.code
                return failure_answer(failure)

    async def _outcome(
        self, request: web.BaseRequest, user: Caller | None, held: ExitStack, *, is_local: bool
    ) -> web.StreamResponse:
        """Return the answer; whatever goes wrong is raised as an ``StatusError``."""
        try:
            return await self._answer(request, user, held, is_local=is_local)
        except (StatusError, ConnectionError):
            raise
        except ConflictError:
            message = "a write was overtaken by another one; try again"
            raise StatusError(409, "Conflict", message) from None
        except ObjectTooLargeError as error:
            raise status_errors.too_large(str(error)) from None
        except StoreFullError as error:
            raise status_errors.not_kept(str(error), is_full=True) from None
        except StoreError as error:
            raise status_errors.not_kept(str(error), is_full=error.is_full) from error
        except web.HTTPException as error:
            reason = error.reason.replace(" ", "")
            raise StatusError(error.status, reason, error.text or error.reason) from None
        except MemoryError as error:
            raise status_errors.too_many_requests("the server is short of memory", retry_after_s=5) from error
        except Exception as error:
            self._faults.failed(request.method, request.path, error)
            raise status_errors.internal_error(f"{type(error).__name__}: {str(error)[:512]}") from error

    async def _send_long(self, request: web.BaseRequest, response: web.Response) -> None:
        """Send an answer that does not fit into the connection's buffers; it is held until it is taken.

        In pieces: TLS and the socket's buffer would each hold all of it once more, which takes longer than
        making it.
        """
        assert isinstance(response.body, bytes)
        body = memoryview(response.body)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await response.prepare(request)
                for begin in range(0, len(body), PIECE_BYTES):
                    await response.write(body[begin : begin + PIECE_BYTES])
                await web.StreamResponse.write_eof(response)  # whose body is written
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the client does not take its answer") from None

    def _authenticate(self, request: web.BaseRequest, user: Caller | None, path: str) -> Caller | None:
        """Return who asks, None for nobody on an open path.

        Raises:
            StatusError: 401.
        """
        authorization = request.headers.get("Authorization")
        if authorization:
            user = self._api.authenticator.user_of(authorization)
            if user is None or not is_there(self._api.store, user):
                raise status_errors.unauthorized()
        if user is None and path not in OPEN_PATHS:
            raise status_errors.unauthorized()
        return user if user is None else impersonation.act_as(self._api.authorizer, user, request.headers)

    async def _answer(
        self, request: web.BaseRequest, user: Caller | None, held: ExitStack, *, is_local: bool
    ) -> web.StreamResponse:
        """Return the answer; what ``held`` counts is under way until the client has it."""
        path = request.path.rstrip("/") or "/"
        user = self._authenticate(request, user, path)
        if user is not None and isinstance(request.protocol, ClientConnection):
            request.protocol.slot.known()
        if (encoding := request.headers.get("Content-Encoding", "identity").lower()) != "identity":
            raise status_errors.encoded_body(encoding)
        if request.method in _READS and (page := self._api.pages.get(path)) is not None:
            return await self._page(path, user, page)
        document = self._documents.answer(request, path) if request.method == "GET" else None
        if document is not None:
            return document
        if user is None:
            raise status_errors.unauthorized()
        target = self._api.registry.parse(path)
        context = RequestContext(request, request.query, user, target)
        verb = verb_of(context)
        self._authorize(context, verb)
        is_watch = (
            verb == "watch"
            or target.subresource in (*STREAMS, "proxy")
            or (target.subresource == "log" and context.flag("follow"))
        )
        held.enter_context(self._load.request(user, is_local=is_local, is_watch=is_watch))
        if request.method not in _READS:
            held.enter_context(self._load.body(user, self._written_bytes(context), is_local=is_local))
        return await self._route(context, verb)

    async def _page(
        self, path: str, user: Caller | None, page: Callable[[], Awaitable[PathAnswer]]
    ) -> web.Response:
        """Answer with a page of the services beside the API, to whom a role lets read the path.

        Raises:
            StatusError: 403.
        """
        if user is None or not self._api.authorizer.may(user, AccessAttributes("get", path=path)):
            raise status_errors.forbidden_path(user.name if user else "", path)
        found = await page()
        return web.Response(
            status=found.status, body=found.body, headers={"Content-Type": found.content_type}
        )

    def _written_bytes(self, context: RequestContext) -> int:
        """Return how long the body may be, and what it changes: what the header says, else the bound."""
        request, target = context.request, context.target
        found = request.content_length
        if found is None:
            found = BODY.bytes_max if request.body_exists else 0
        old = self._api.store.latest(*target.key) if target.name else None
        return min(found, BODY.bytes_max) + (len(old.data) if old is not None else 0)

    def _authorize(self, context: RequestContext, verb: str) -> None:
        target, user = context.target, context.user
        namespace = target.namespace
        if not target.served.resource.namespaced and target.served.resource.plural == "namespaces":
            namespace = target.name
        resource = target.served.resource
        wanted = AccessAttributes(
            verb,
            resource.group,
            resource.plural,
            target.subresource,
            namespace,
            target.name,
            is_namespaced=resource.namespaced,
        )
        if not self._api.authorizer.may(user, wanted):
            raise status_errors.forbidden(
                user.name, verb, target.served, target.namespace, target.name, target.subresource
            )

    async def _route(self, context: RequestContext, verb: str) -> web.StreamResponse:
        target = context.target
        if target.served.resource.kind == "Binding":
            return await create_binding(self._api, context)
        if target.served.resource == PROJECT_REQUESTS:
            return await projects.create_requested(self._api, context)
        if target.served.resource == PROJECTS and verb == "delete":
            return await projects.delete(self._api, context)
        if target.served.resource.group == POD_METRICS.group:
            return await self._metrics.answer(context)
        if not target.served.is_stored:
            return await access_review.create_review(self._api, context)
        if verb == "watch":
            return await WatchStream(self._api.store, context).run()
        if target.subresource and target.subresource not in writing.PARTS:
            if target.subresource == "log":
                return await logs.pod_log(self._api, context)
            if target.subresource == "proxy":
                return await proxy(self._api, context)
            if target.subresource in STREAMS:
                return await STREAMS[target.subresource](self._api, context)
            return await SUBRESOURCES[target.subresource, context.request.method](self._api, context)
        if verb == "get":
            return reading.get_object(self._api.store, context)
        if verb == "list":
            return await reading.list_objects(self._api.store, context)
        return await _WRITERS[verb](self._api, context)


_WRITERS: dict[str, Handler] = {
    "create": writing.create,
    "update": writing.replace,
    "patch": patching.patch,
    "delete": deleting.delete,
    "deletecollection": deleting.delete_collection,
}


def _lasts(request: web.BaseRequest) -> bool:
    """Return whether a request is answered until somebody ends it: a watch, a followed log, a stream."""
    asked = (request.query.get(name, "false").lower() for name in ("watch", "follow"))
    return "Upgrade" in request.headers or any(value not in ("false", "0") for value in asked)


def verb_of(context: RequestContext) -> str:
    """Return the API verb of a request.

    Raises:
        StatusError: 404 no such subresource, 405 a method that does not fit, 501 a part that is missing here.
    """
    target, method = context.target, context.request.method
    if target.subresource:
        return _subresource_verb(target, method)
    if target.name:
        verb = _OBJECT_VERBS.get(method)
    else:
        verb = _COLLECTION_VERBS.get(method)
    if verb is None or verb not in target.served.verbs:
        raise status_errors.method_not_allowed(method)
    if verb in ("list", "get") and context.flag("watch"):
        return "watch"
    return verb


def _subresource_verb(target: RequestTarget, method: str) -> str:
    name = target.subresource
    if name == "proxy" and name in target.served.subresources and method in _PROXY_VERBS:
        return _PROXY_VERBS[method]
    if name not in target.served.subresources:
        if name in _KNOWN_UNSERVED:
            raise status_errors.not_implemented(_KNOWN_UNSERVED[name])
        raise status_errors.no_such_path()
    verb = "create" if name in STREAMS and method == "GET" else _SUBRESOURCE_VERBS.get(method)
    if verb is None or verb not in SUBRESOURCE_VERBS[name]:
        raise status_errors.method_not_allowed(method)
    if target.rest:
        raise status_errors.no_such_path()
    return verb
