"""How an API server is reached: what a connection's words mean for TLS, proxies and Unix sockets."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from gangline.kube.config import Connection, Credential
from gangline.kube.connections import Endpoint
from gangline.kube.errors import KubeconfigError

connect_timeout_s = 10.0
"""Time to open a connection, TLS included."""

UNIX_SCHEME = "unix://"


def endpoint(connection: Connection, credential: Credential) -> Endpoint:
    """Return where and how the server is reached; nothing is connected yet.

    Raises:
        KubeconfigError: certificates or keys cannot be read, or a URL has an unknown scheme.
    """
    scheme = connection.server.partition("://")[0]
    if scheme not in ("https", "http", "unix"):
        raise KubeconfigError(
            f"server `{connection.server}` has no known scheme",
            hint="write https://HOST:PORT, http://HOST:PORT or unix:///PATH",
        )
    return Endpoint(
        base_url(connection),
        socket=connection.server.removeprefix(UNIX_SCHEME) if scheme == "unix" else "",
        tls=tls_context(connection, credential) if scheme == "https" else None,
        server_name=connection.tls_server_name,
        proxy=proxy_for(connection),
        connect_timeout_s=connect_timeout_s,
    )


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


def proxy_for(connection: Connection) -> str:
    """Return the URL of the proxy: the kubeconfig's, else the environment's (``HTTPS_PROXY``, ``NO_PROXY``).

    Raises:
        KubeconfigError: it is no HTTP proxy.
    """
    if connection.server.startswith(UNIX_SCHEME):
        return ""
    proxy = connection.proxy_url or _proxy_of_environment(connection.server)
    try:
        url = urlsplit(proxy)
        is_usable = not proxy or (url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise KubeconfigError(f"proxy `{proxy}` is no HTTP proxy", hint="write http://HOST:PORT")
    return proxy


def _proxy_of_environment(server: str) -> str:
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    url = urlsplit(server)
    proxies: dict[str, str] = getproxies_environment()
    if url.scheme not in proxies or url.hostname in ("localhost", "127.0.0.1", "::1"):
        return ""
    return "" if proxy_bypass_environment(url.netloc, proxies) else proxies[url.scheme]


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
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix="gangline-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate.rstrip() + b"\n" + key)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
