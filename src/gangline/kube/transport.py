"""How bytes reach an API server: an aiohttp session for a connection, over TLS, plain HTTP or a Unix socket.

Every other module imports ``aiohttp`` from here, because importing it costs 65 ms more than it must: the
library loads the system's certificates twice at import, and a Unix socket never needs them.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gangline.kube.config import Connection, Credential
from gangline.kube.connections import Connections, Endpoint
from gangline.kube.errors import KubeconfigError
from gangline.kube.socket_owner import ForeignSocketError, check_peer

connect_timeout_s = 10.0
"""Time to open a connection, TLS included."""

keep_alive_s = 60.0
"""An idle connection is kept so long; API servers close theirs after 90 s. New ones cost both 1 ms."""

__all__ = ["Channel", "aiohttp", "base_url", "connect_timeout_s", "open_channel", "proxy_for", "tls_context"]

UNIX_SCHEME = "unix://"


class _CertificatesOnFirstUse(ssl.SSLContext):
    """A context that reads the system's certificates when it first opens a connection."""

    def _load(self) -> None:
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]
        self.load_default_certs()

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        self._load()
        return self.wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        self._load()
        return self.wrap_socket(*args, **options)


def _postpone(context: ssl.SSLContext, *_purpose: ssl.Purpose) -> None:
    context.__class__ = _CertificatesOnFirstUse


def _import_aiohttp() -> Any:
    """Import aiohttp; the contexts that it makes meanwhile load their certificates on first use.

    Nothing changes for other users of aiohttp in this process; imported before, it stays as it is.
    Cost: 65 ms less on Debian 12 (2026-11).
    """
    originals = ssl.SSLContext.load_default_certs, ssl.SSLContext.set_default_verify_paths
    ssl.SSLContext.load_default_certs = _postpone  # type: ignore[method-assign, assignment]
    ssl.SSLContext.set_default_verify_paths = _postpone  # type: ignore[method-assign, assignment]
    try:
        import aiohttp
    finally:
        ssl.SSLContext.load_default_certs = originals[0]  # type: ignore[method-assign]
        del ssl.SSLContext.set_default_verify_paths  # inherited from the C class
    return aiohttp


if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = _import_aiohttp()


@dataclass(frozen=True, slots=True)
class Channel:
    """Two ways to a server, as one identity.

    Attributes:
        session: for everything.
        connections: for small requests, at less cost.
    """

    session: aiohttp.ClientSession
    connections: Connections

    async def close(self) -> None:
        """Close both; running requests fail."""
        self.connections.close()
        await self.session.close()


def open_channel(connection: Connection, credential: Credential, *, user_agent: str) -> Channel:
    """Return the ways to the server; nothing is connected yet. Needs a running event loop.

    Raises:
        KubeconfigError: certificates or keys cannot be read.
    """
    connector: aiohttp.BaseConnector
    headers = {"User-Agent": user_agent, "Accept": "application/json, */*"}
    socket, tls = "", None
    if connection.server.startswith(UNIX_SCHEME):
        socket = connection.server.removeprefix(UNIX_SCHEME)
        connector = _OwnUnixConnector(socket, limit=0, keepalive_timeout=keep_alive_s)
    elif connection.server.startswith("https://"):
        tls = tls_context(connection, credential)
        connector = aiohttp.TCPConnector(ssl=tls, limit=0, keepalive_timeout=keep_alive_s)
    elif connection.server.startswith("http://"):
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=keep_alive_s)
    else:
        raise KubeconfigError(
            f"server `{connection.server}` has no known scheme",
            hint="write https://HOST:PORT, http://HOST:PORT or unix:///PATH",
        )
    session = aiohttp.ClientSession(
        connector=connector,
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    endpoint = Endpoint(
        base_url(connection), socket, tls, connection.tls_server_name, connect_timeout_s=connect_timeout_s
    )
    return Channel(session, Connections(endpoint, headers, idle_s=keep_alive_s))


class _OwnUnixConnector(aiohttp.UnixConnector):
    """Connects to this user's servers only."""

    async def _create_connection(self, *arguments: Any, **options: Any) -> Any:
        connection = await super()._create_connection(*arguments, **options)
        try:
            assert connection.transport is not None
            check_peer(connection.transport.get_extra_info("socket"), self.path)
        except ForeignSocketError:
            connection.close()
            raise
        return connection


def base_url(connection: Connection) -> str:
    """Return the URL that paths are appended to; the host of a Unix socket is ``localhost``.

    Raises:
        KubeconfigError: its host or port can be none.
    """
    if connection.server.startswith(UNIX_SCHEME):
        return "http://localhost"
    try:
        url = urlsplit(connection.server)
        (url.hostname or "").encode("idna")
        _ = url.port
    except ValueError as error:
        raise KubeconfigError(
            f"server `{connection.server}` cannot be read: {error}", hint="write https://HOST:PORT"
        ) from error
    return connection.server.rstrip("/")


def proxy_for(connection: Connection) -> str | None:
    """Return the proxy: the kubeconfig's, else the environment's (``HTTPS_PROXY``, ``NO_PROXY``)."""
    if connection.server.startswith(UNIX_SCHEME):
        return None
    if connection.proxy_url:
        return connection.proxy_url
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    url = urlsplit(connection.server)
    proxies: dict[str, str] = getproxies_environment()
    if url.scheme not in proxies or url.hostname in ("localhost", "127.0.0.1", "::1"):
        return None
    return None if proxy_bypass_environment(url.netloc, proxies) else proxies[url.scheme]


def tls_context(connection: Connection, credential: Credential) -> ssl.SSLContext:
    """Return the TLS context: the connection's CA alone, else the system's; the client certificate if any.

    Raises:
        KubeconfigError: a certificate or key cannot be read.
    """
    try:
        authority = connection.ca_data.decode("ascii") if connection.ca_data else None
        context = ssl.create_default_context(cadata=authority)
        # Python 3.13 refuses CAs without key identifiers; clusters have such, and kubectl takes them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if connection.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credential.client_cert and credential.client_key:
            _load_pair(context, credential.client_cert, credential.client_key)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise KubeconfigError(f"certificates for {connection.server} cannot be used: {error}") from error
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and key; OpenSSL takes them from files only, so they pass through a private one."""
    descriptor, name = tempfile.mkstemp(prefix="gangline-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate.rstrip() + b"\n" + key)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
