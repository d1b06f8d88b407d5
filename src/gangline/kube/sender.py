"""Sends one request to one API server: credentials, retries, and failures of the transport as our errors."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, Self
from urllib.parse import urlencode

import msgspec

from gangline.kube import credentials
from gangline.kube.config import Connection, Credential
from gangline.kube.connections import Connections, NotConnected
from gangline.kube.errors import (
    ApiError,
    KubeconfigError,
    ServerError,
    TooManyRequests,
    Unavailable,
    error_from_body,
)
from gangline.kube.http_connection import Answer
from gangline.kube.pod_streams.web_socket import WebSocket, accept_of, new_key
from gangline.kube.transport import endpoint

request_timeout_s = 30.0
"""Bound of one call, its retries included."""

probe_timeout_s = 5.0
"""Bound of a look whether the server is ready."""

keep_alive_s = 60.0
"""An idle connection is kept so long; API servers close theirs after 90 s. New ones cost both 1 ms."""

concurrent_requests_max = 64
"""Requests in flight at once; watches and logs do not count."""

posts_together = 16
"""Requests of :meth:`Sender.post_all` that share a task; their slots are free again once all are answered."""

refusals_max = 10
"""Tries that the server may put off (429, 503 with Retry-After), within the call's time."""

retry_after_max_s = 30.0
retry_after_default_s = 1.0

connection_retry_delays_s = (0.05, 0.2, 0.5)
"""Pauses before the next tries when the connection fails."""

_SWITCHING = 101
_PUT_OFF = (401, 429, 503)
_REDIRECT = 300  # API servers redirect nobody: it is the login page of something before them


class Sender:
    """One server, one identity, one pool of connections; close it, or use it as an async context manager.

    Args:
        connection: where, and as whom.
        user_agent: shown to the server.
        sleep: how to pause before a retry; tests pass their own.
        recover: brings back a server that cannot be reached, or waits until somebody did, before a retry.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str = "gangline",
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        recover: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._recover = recover
        self.connection = connection
        self._user_agent = user_agent
        self._sleep = sleep
        self._slots = asyncio.Semaphore(concurrent_requests_max)
        self._many_slots = asyncio.Lock()
        self._credential: Credential | None = None
        self._credential_lock = asyncio.Lock()
        self._pools: list[Connections] = []  # the last one is in use; certificates may rotate
        self._pool_certificate = b""
        self._is_closed = False
        self._answers: Counter[tuple[str, str]] = Counter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def answers(self) -> dict[tuple[str, str], int]:
        """Return how many requests were sent since the start, by method and status (or ``error``)."""
        return dict(self._answers)

    async def close(self) -> None:
        """Close all connections; running requests fail."""
        self._is_closed = True
        while self._pools:
            self._pools.pop().close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = request_timeout_s,
    ) -> bytes:
        """Send a request and return the body of the answer.

        A 429, and a 503 with ``Retry-After``, are tried again after the time that the server names. After a
        failed connection a GET is tried again, and any other method where the server cannot have seen the
        request: a few times, or for as long as there is time where ``recover`` brings the server back. All of
        it within ``timeout_s``.

        Args:
            method: HTTP method.
            path: absolute path on the server.
            params: query; None and empty values are left out, booleans are written as JSON.
            body: bytes as they are, anything else as JSON.
            content_type: of the body.
            headers: more headers.
            timeout_s: bound of the whole call.

        Raises:
            ApiError: the server refused, or could not be reached (:class:`Unavailable`).
        """
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        sent_headers = {**(headers or {}), **({"Content-Type": content_type} if data is not None else {})}
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        refusals = failures = 0
        while True:
            until_s = max(deadline_s, loop.time() + 0.001)
            try:
                async with self._slots:
                    return await self._read_all(method, path, params, data, sent_headers, until_s)
            except (TooManyRequests, Unavailable) as error:
                if error.status:
                    delay_s = _refusal_delay_s(error, refusals)
                    refusals += 1
                else:
                    delay_s = _failure_delay_s(error, method, failures, is_patient=self._recover is not None)
                    failures += 1
                if self._is_closed or delay_s is None or delay_s >= deadline_s - loop.time():
                    raise
                if self._recover is not None and not error.status:
                    await self._recover()
            await self._sleep(delay_s)

    async def post_all(self, requests: Sequence[tuple[str, Any]]) -> list[ApiError | None]:
        """POST bodies as JSON, each to a path, at once; return for each why the server has not taken it.

        What the server puts off, or cannot have seen, is tried again as by :meth:`send`. The time of each
        counts from when it is sent, for many may wait before it. Cost: 0.6 of the processor time of as many
        calls of that, for many share a task and a bound, and no answer is decoded.
        """
        size = posts_together
        some = [requests[first : first + size] for first in range(0, len(requests), size)]
        return list(chain.from_iterable(await asyncio.gather(*map(self._post_some, some))))

    async def _post_some(self, requests: Sequence[tuple[str, Any]]) -> list[ApiError | None]:
        sent = [(path, msgspec.json.encode(body)) for path, body in requests]
        taken = 0
        try:
            async with self._many_slots:  # two that have some of theirs would wait for each other
                for _ in sent:
                    await self._slots.acquire()
                    taken += 1
            credential, connections = await self._identity(renew=False)
            headers = _headers(credential, {"Content-Type": "application/json"})
            until_s = asyncio.get_running_loop().time() + request_timeout_s
            answers = await connections.request_all("POST", sent, headers, until_s)
        finally:
            for _ in range(taken):
                self._slots.release()
        again = [
            self._post_again(*one) for one, answer in zip(sent, answers, strict=True) if _is_put_off(answer)
        ]
        told = iter(await asyncio.gather(*again))
        return [
            next(told) if _is_put_off(answer) else self._outcome(f"POST {path}", answer)
            for (path, _), answer in zip(sent, answers, strict=True)
        ]

    async def _post_again(self, path: str, body: bytes) -> ApiError | None:
        try:
            await self.send("POST", path, body=body)
        except ApiError as error:
            return error
        return None

    def _outcome(self, doing: str, answer: tuple[Answer, bytes] | OSError) -> ApiError | None:
        if isinstance(answer, OSError):
            self._answers["POST", "error"] += 1
            return _unavailable(answer, doing, self.connection.server)
        self._answers["POST", str(answer[0].status)] += 1
        return _refusal(*answer, doing) if answer[0].status >= _REDIRECT else None

    async def probe(self, path: str) -> bool:
        """Return whether a GET is answered with success, at once and without another try."""
        until_s = asyncio.get_running_loop().time() + probe_timeout_s
        try:
            await self._read_all("GET", path, None, None, {}, until_s)
        except ApiError:
            return False
        return True

    async def _read_all(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        data: bytes | None,
        headers: Mapping[str, str],
        until_s: float,
    ) -> bytes:
        try:
            answer, body = await self._authorized(method, path, params, data, headers, until_s, is_read=True)
        except OSError as error:  # TimeoutError is one
            raise _unavailable(error, f"{method} {path}", self.connection.server) from error
        if answer.status >= _REDIRECT:
            raise _refusal(answer, body, f"{method} {path}")
        return body

    @asynccontextmanager
    async def open(
        self, path: str, params: Mapping[str, Any] | None, *, head_timeout_s: float | None = None
    ) -> AsyncIterator[Answer]:
        """Open a GET whose answer is a success, to be read in pieces; failures, later too, become ours.

        Args:
            path: absolute path on the server.
            params: as for :meth:`send`.
            head_timeout_s: longest wait for the answer to begin.
        """
        doing = f"GET {path}"
        try:
            until_s = asyncio.get_running_loop().time() + head_timeout_s if head_timeout_s else None
            answer, _ = await self._authorized("GET", path, params, None, {}, until_s)
            try:
                if answer.status >= _REDIRECT:
                    async with asyncio.timeout(request_timeout_s):
                        raise _refusal(answer, await answer.read(), doing)
                yield answer
            finally:
                answer.close()
        except OSError as error:
            raise _unavailable(error, doing, self.connection.server) from error

    async def open_web_socket(
        self, path: str, params: Mapping[str, Any], protocols: Sequence[str]
    ) -> tuple[WebSocket, str]:
        """Ask for a WebSocket; return it and the protocol that the server has chosen.

        Raises:
            ApiError: the server refuses, or cannot be reached.
        """
        doing, key = f"GET {path}", new_key()
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": ", ".join(protocols),
        }
        until_s = asyncio.get_running_loop().time() + request_timeout_s
        try:
            answer, _ = await self._authorized("GET", path, params, None, headers, until_s)
            if answer.status == _SWITCHING:
                protocol = answer.headers.get("sec-websocket-protocol", "")
                if answer.headers.get("sec-websocket-accept") != accept_of(key) or protocol not in protocols:
                    answer.close()
                    raise ServerError(0, "", f"{doing}: the server speaks none of {', '.join(protocols)}")
                web_socket = WebSocket(is_client=True)
                web_socket.take(*answer.switch())
                return web_socket, protocol
            try:
                async with asyncio.timeout_at(until_s):
                    raise _refusal(answer, await answer.read(), doing)
            finally:
                answer.close()
        except OSError as error:
            raise _unavailable(error, doing, self.connection.server) from error

    async def _authorized(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        data: bytes | None,
        headers: Mapping[str, str],
        until_s: float | None,
        *,
        is_read: bool = False,
    ) -> tuple[Answer, bytes]:
        """Ask as whom we are; after a 401 once more with a fresh credential, where there may be one.

        With ``is_read`` the body comes with the answer, within ``until_s`` too: a second bound costs 5 µs.
        """
        query, is_renewed = urlencode(_query(params), doseq=True) if params else "", False
        while True:
            credential, connections = await self._identity(renew=is_renewed)
            try:
                async with asyncio.timeout_at(until_s):
                    answer = await connections.request(
                        method, path, query, _headers(credential, headers), data
                    )
                    body = await answer.read() if is_read else b""
            except OSError:
                self._answers[method, "error"] += 1
                raise
            self._answers[method, str(answer.status)] += 1
            if answer.status != 401 or is_renewed or not credentials.is_renewable(self.connection):
                return answer, body
            answer.close()
            is_renewed = True

    async def _identity(self, *, renew: bool) -> tuple[Credential, Connections]:
        """Return the identity to show and the connections that show its certificate.

        Raises:
            KubeconfigError: it cannot be read.
            Unavailable: it could before, so that it may again.
        """
        known = self._credential
        if known is None or renew or credentials.is_expired(known):
            async with self._credential_lock:
                if self._credential is known:  # nobody else has read it meanwhile
                    try:
                        self._credential = await credentials.read_credential(self.connection)
                    except KubeconfigError as error:
                        if known is None:
                            raise
                        raise Unavailable(0, "", str(error), hint=error.hint) from error
        credential = self._credential
        assert credential is not None
        if self._is_closed:
            raise Unavailable(0, "", "the client is closed")
        if not self._pools or self._pool_certificate != credential.client_cert:
            headers = {"User-Agent": self._user_agent}
            target = endpoint(self.connection, credential)
            if not target.socket:  # which costs less than to compress
                headers["Accept-Encoding"] = "gzip"
            self._pools.append(Connections(target, headers, idle_s=keep_alive_s))
            self._pool_certificate = credential.client_cert
        return credential, self._pools[-1]


def _headers(credential: Credential, more: Mapping[str, str]) -> dict[str, str]:
    headers = {"Accept": "application/json, */*", **more}
    if credential.authorization:
        headers["Authorization"] = credential.authorization
    return headers


def _is_put_off(answer: tuple[Answer, bytes] | OSError) -> bool:
    """Whether the server has not done what it was asked for, and may when it is asked again."""
    return isinstance(answer, NotConnected) if isinstance(answer, OSError) else answer[0].status in _PUT_OFF


def _query(params: Mapping[str, Any] | None) -> dict[str, str | list[str]]:
    """Return the query in text; None and empty values are left out, a list is one each."""
    return {
        key: value
        if isinstance(value, list)
        else ("true" if value else "false")
        if isinstance(value, bool)
        else str(value)
        for key, value in (params or {}).items()
        if value is not None and value != ""
    }


def _refusal_delay_s(error: ApiError, refusals: int) -> float | None:
    """Return the pause before the next try of a request that the server put off, None to give up."""
    if refusals >= refusals_max:
        return None
    if error.retry_after_s is None:
        return retry_after_default_s if isinstance(error, TooManyRequests) else None
    return min(error.retry_after_s, retry_after_max_s)


def _failure_delay_s(error: ApiError, method: str, failures: int, *, is_patient: bool) -> float | None:
    """Return the pause before the next try after the connection failed, None to give up."""
    last = len(connection_retry_delays_s) - 1
    if failures > last and not is_patient:
        return None
    if method != "GET" and not isinstance(error.__cause__, NotConnected):
        return None  # the server may have done it
    return connection_retry_delays_s[min(failures, last)]


def _refusal(answer: Answer, body: bytes, doing: str) -> ApiError:
    retry_after = answer.headers.get("retry-after", "")
    return error_from_body(answer.status, body, doing=doing, retry_after=retry_after)


def _unavailable(error: Exception, doing: str, server: str) -> Unavailable:
    """Return our error for a failure of the transport."""
    hint = ""
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        hint = "the server's certificate is not signed by a CA that the kubeconfig trusts"
    text = "it took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return Unavailable(0, "", f"{doing} got no answer from {server}: {text}", hint=hint)
