"""A server that speaks TLS, and certificates for it."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    certificate: bytes
    key: bytes


def make_pair(name: str, issuer: tuple[x509.Certificate, Any] | None = None) -> tuple[Pair, Any]:
    """A key and a certificate: a CA without issuer, else a leaf for localhost. No key identifiers."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer:
        names = [x509.DNSName("inner"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(issuer[1] if issuer else key, hashes.SHA256())
    pair = Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    return pair, (certificate, key)


class TlsServer(NamedTuple):
    url: str
    authority: bytes
    client: Pair
    seen: list[tuple[str, str]]
    """Authorization and the client certificate's name, of each request."""
    accepted: set[str]
    """Values of Authorization that are let in; empty lets everybody in."""


@asynccontextmanager
async def serve_tls(folder: Path) -> AsyncIterator[TlsServer]:
    authority, issuer = make_pair("test CA")
    leaf, _ = make_pair("server", issuer)
    client, _ = make_pair("a-client", issuer)
    (folder / "server.pem").write_bytes(leaf.certificate + leaf.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(cadata=authority.certificate.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    seen: list[tuple[str, str]] = []
    accepted: set[str] = set()

    async def serve(request: web.Request) -> web.Response:
        assert request.transport
        peer = request.transport.get_extra_info("peercert") or {}
        names = dict(pair for group in peer.get("subject", ()) for pair in group)
        shown = request.headers.get("Authorization", "")
        seen.append((shown, names.get("commonName", "")))
        return web.json_response({}, status=401 if accepted and shown not in accepted else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    yield TlsServer(f"https://127.0.0.1:{port}", authority.certificate, client, seen, accepted)
    await runner.cleanup()
