"""Sends one request to one API server: credentials, retries, and failures of the transport as our errors."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from gangline.kube import credentials, transport
from gangline.kube.config import Connection, Credential
from gangline.kube.connections import HttpAnswer, NotConnected
from gangline.kube.errors import ApiError, KubeconfigError, TooManyRequests, Unavailable, error_from_body
from gangline.kube.transport import aiohttp

request_timeout_s = 30.0
"""Bound of one call, its retries included."""

concurrent_requests_max = 64
"""Requests in flight at once; watches and logs do not count."""

refusals_max = 10
"""Tries that the server may put off (429, 503 with Retry-After), within the call's time."""

retry_after_max_s = 30.0
retry_after_default_s = 1.0

connection_retry_delays_s = (0.05, 0.2, 0.5)
"""Pauses before the next tries when the connection fails."""

_SAFE_METHODS = ("GET", "HEAD")
_REDIRECT = 300  # API servers redirect nobody: it is the login page of something before them


class _Answer(Protocol):
    @property
    def status(self) -> int: ...

    def close(self) -> None: ...


A = TypeVar("A", bound=_Answer)


class Sender:
    """One server, one identity, one pool of connections. Arguments as for the client."""

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        sleep: Callable[[float], Awaitable[object]],
        recover: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._recover = recover
        self._connection = connection
        self._base_url = transport.base_url(connection)
        self._proxy = transport.proxy_for(connection)
        self._user_agent = user_agent
        self._sleep = sleep
        self._slots = asyncio.Semaphore(concurrent_requests_max)
        self._credential: Credential | None = None
        self._credential_lock = asyncio.Lock()
        self._channels: list[transport.Channel] = []  # the last one is in use; certificates may rotate
        self._channel_certificate = b""
        self._is_closed = False
        self.answers: Counter[tuple[str, str]] = Counter()
        """Requests sent, by method and HTTP status; ``error`` where no answer came."""

    async def close(self) -> None:
        """Close all connections; running requests fail."""
        self._is_closed = True
        while self._channels:
            await self._channels.pop().close()

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
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        refusals = failures = 0
        while True:
            left_s = deadline_s - asyncio.get_running_loop().time()
            left_s = max(left_s, 0.001)
            try:
                async with self._slots:
                    if data is None or self._proxy:
                        return await self._read_all(method, path, params, data, sent_headers, left_s)
                    return await self._write(method, path, params, data, sent_headers, left_s)
            except (TooManyRequests, Unavailable) as error:
                if error.status:
                    delay_s = _refusal_delay_s(error, refusals)
                    refusals += 1
                else:
                    delay_s = _failure_delay_s(error, method, failures, is_patient=self._recover is not None)
                    failures += 1
                if (
                    self._is_closed
                    or delay_s is None
                    or delay_s >= deadline_s - asyncio.get_running_loop().time()
                ):
                    raise
                if self._recover is not None and not error.status:
                    await self._recover()
            await self._sleep(delay_s)

    async def _read_all(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=transport.connect_timeout_s)
        async with self.open(method, path, params, data, headers=headers, timeout=timeout) as answer:
            return await answer.read()

    async def _write(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        data: bytes,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> bytes:
        """Send a request with a body on the way that costs less."""
        query, deadline_s = urlencode(_query(params)), asyncio.get_running_loop().time() + timeout_s

        async def ask(channel: transport.Channel, authorization: str) -> HttpAnswer:
            sent = {**headers, "Authorization": authorization} if authorization else headers
            async with asyncio.timeout_at(deadline_s):
                return await channel.connections.request(method, path, query, sent, data)

        doing = f"{method} {path}"
        try:
            answer = await self._authorized(method, ask)
        except OSError as error:  # TimeoutError is one
            raise _unavailable(error, doing, self._connection.server) from error
        if answer.status >= _REDIRECT:
            retry_after = answer.headers.get("retry-after", "")
            raise error_from_body(answer.status, answer.body, doing=doing, retry_after=retry_after)
        return answer.body

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        data: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open one request whose answer is a success; failures of the transport, later too, become ours."""
        doing = f"{method} {path}"
        try:
            answer = await self._start(method, path, _query(params), data, dict(headers or {}), timeout)
            async with answer:
                if answer.status >= _REDIRECT:
                    retry_after = answer.headers.get("Retry-After", "")
                    raise error_from_body(
                        answer.status, await answer.read(), doing=doing, retry_after=retry_after
                    )
                yield answer
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise _unavailable(error, doing, self._connection.server) from error

    async def _start(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        data: bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send one request on the way for everything."""

        async def ask(channel: transport.Channel, authorization: str) -> aiohttp.ClientResponse:
            if authorization:
                headers["Authorization"] = authorization
            return await channel.session.request(
                method,
                self._base_url + path,
                params=query,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                proxy=self._proxy,
                server_hostname=self._connection.tls_server_name or None,
            )

        return await self._authorized(method, ask)

    async def _authorized(self, method: str, ask: Callable[[transport.Channel, str], Awaitable[A]]) -> A:
        """Ask as whom we are; after a 401 once more with a fresh credential, where there may be one."""
        is_renewed = False
        while True:
            credential, channel = await self._channel(renew=is_renewed)
            try:
                answer = await ask(channel, credential.authorization)
            except (aiohttp.ClientError, OSError):
                self.answers[method, "error"] += 1
                raise
            self.answers[method, str(answer.status)] += 1
            if answer.status != 401 or is_renewed or not credentials.is_renewable(self._connection):
                return answer
            answer.close()
            is_renewed = True

    async def _channel(self, *, renew: bool) -> tuple[Credential, transport.Channel]:
        """Return the identity to show and the ways that show its certificate.

        Raises:
            KubeconfigError: it cannot be read.
            Unavailable: it could before, so that it may again.
        """
        known = self._credential
        if known is None or renew or credentials.is_expired(known):
            async with self._credential_lock:
                if self._credential is known:  # nobody else has read it meanwhile
                    try:
                        self._credential = await credentials.read_credential(self._connection)
                    except KubeconfigError as error:
                        if known is None:
                            raise
                        raise Unavailable(0, "", str(error), hint=error.hint) from error
        credential = self._credential
        assert credential is not None
        if self._is_closed:
            raise Unavailable(0, "", "the client is closed")
        if not self._channels or self._channel_certificate != credential.client_cert:
            self._channels.append(
                transport.open_channel(self._connection, credential, user_agent=self._user_agent)
            )
            self._channel_certificate = credential.client_cert
        return credential, self._channels[-1]


def _query(params: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the query in text; None and empty values are left out."""
    return {
        key: ("true" if value else "false") if isinstance(value, bool) else str(value)
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
    if method not in _SAFE_METHODS and not isinstance(
        error.__cause__, aiohttp.ClientConnectorError | NotConnected
    ):
        return None  # the server may have done it
    return connection_retry_delays_s[min(failures, last)]


def _unavailable(error: Exception, doing: str, server: str) -> Unavailable:
    """Return our error for a failure of the transport."""
    hint = ""
    if isinstance(error, aiohttp.ClientConnectorCertificateError) or isinstance(
        error.__cause__, ssl.SSLCertVerificationError
    ):
        hint = "the server's certificate is not signed by a CA that the kubeconfig trusts"
    text = "it took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return Unavailable(0, "", f"{doing} got no answer from {server}: {text}", hint=hint)
