"""How a connection is made: TLS, credentials that are renewed, plugins, what an import costs nobody."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gangline.api.resources import PODS
from gangline.kube import credentials, errors
from gangline.kube.client import Client
from gangline.kube.config import Connection, ExecPlugin


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


@pytest.fixture
async def tls(tmp_path: Path) -> AsyncIterator[TlsServer]:
    authority, issuer = make_pair("test CA")
    leaf, _ = make_pair("server", issuer)
    client, _ = make_pair("a-client", issuer)
    (tmp_path / "server.pem").write_bytes(leaf.certificate + leaf.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
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


async def read(client: Client) -> None:
    await client.get(PODS, "a")


async def write(client: Client) -> None:
    await client.patch(PODS, "a", {})


@pytest.fixture(params=[read, write], autouse=True)
def one_request(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and writes have connections of their own; both must be as safe."""
    monkeypatch.setattr(sys.modules[__name__], "send_one", request.param)


send_one: Callable[[Client], Awaitable[None]] = read


async def ask(connection: Connection) -> None:
    async with Client(connection, sleep=no_sleep) as client:
        await send_one(client)


async def no_sleep(_delay_s: float) -> None:
    return


async def test_a_server_of_the_given_ca_is_trusted_and_shown_the_token(tls: TlsServer) -> None:
    await ask(Connection(server=tls.url, ca_data=tls.authority, token="t"))

    assert tls.seen == [("Bearer t", "")]


async def test_a_server_of_another_ca_is_not(tls: TlsServer) -> None:
    other, _ = make_pair("other CA")
    with pytest.raises(errors.Unavailable) as caught:
        await ask(Connection(server=tls.url, ca_data=other.certificate))

    assert "CA" in caught.value.hint
    assert tls.seen == []


async def test_a_server_that_the_system_does_not_know_is_not_trusted(tls: TlsServer) -> None:
    with pytest.raises(errors.Unavailable):
        await ask(Connection(server=tls.url))


async def test_insecure_asks_for_nothing(tls: TlsServer) -> None:
    await ask(Connection(server=tls.url, insecure=True))

    assert len(tls.seen) == 1


@pytest.mark.parametrize(("name", "is_trusted"), [("inner", True), ("outer", False)])
async def test_the_name_in_the_certificate_can_be_said(tls: TlsServer, name: str, is_trusted: bool) -> None:
    connection = Connection(server=tls.url, ca_data=tls.authority, tls_server_name=name)
    if is_trusted:
        await ask(connection)
    else:
        with pytest.raises(errors.Unavailable):
            await ask(connection)


@pytest.mark.parametrize("as_files", [False, True])
async def test_a_client_certificate_is_shown(tls: TlsServer, tmp_path: Path, as_files: bool) -> None:
    certificate, key = tls.client
    (tmp_path / "c").write_bytes(certificate)
    (tmp_path / "k").write_bytes(key)
    await ask(
        Connection(
            server=tls.url,
            ca_data=tls.authority,
            client_cert=tmp_path / "c" if as_files else certificate,
            client_key=tmp_path / "k" if as_files else key,
        )
    )

    assert tls.seen == [("", "a-client")]


async def test_a_broken_certificate_is_an_error_of_the_kubeconfig(tls: TlsServer) -> None:
    with pytest.raises(errors.KubeconfigError, match="certificates"):
        await ask(Connection(server=tls.url, ca_data=b"nonsense"))


async def test_basic_authentication(tls: TlsServer) -> None:
    await ask(Connection(server=tls.url, ca_data=tls.authority, username="u", password="p"))

    assert tls.seen == [("Basic dTpw", "")]


async def test_a_rotated_token_is_read_again_after_a_401(tls: TlsServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    tls.accepted.update({"Bearer old", "Bearer new"})
    async with Client(Connection(server=tls.url, ca_data=tls.authority, token_file=token)) as client:
        await send_one(client)
        token.write_text("new\n")
        tls.accepted.remove("Bearer old")
        await send_one(client)

    assert [shown for shown, _ in tls.seen] == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_token_that_could_be_read_before_may_come_again(tls: TlsServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    tls.accepted.add("Bearer old")
    connection = Connection(server=tls.url, ca_data=tls.authority, token_file=token)
    async with Client(connection, sleep=no_sleep) as client:
        await send_one(client)
        tls.accepted.clear()
        tls.accepted.add("Bearer new")
        token.unlink()
        with pytest.raises(errors.Unavailable, match="token cannot be read"):
            await send_one(client)

        token.write_text("new")
        await send_one(client)


async def test_a_token_that_stays_wrong_is_unauthorized(tls: TlsServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong")
    tls.accepted.add("Bearer right")
    with pytest.raises(errors.Unauthorized):
        await ask(Connection(server=tls.url, ca_data=tls.authority, token_file=tmp_path / "token"))

    assert len(tls.seen) == 2


def make_plugin(folder: Path, body: str) -> ExecPlugin:
    program = folder / "plugin"
    program.write_text(f"#!{sys.executable} -IS\nimport json, os, sys\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return ExecPlugin(
        command=("./plugin", "arg"), env=(("EXTRA", "x"),), folder=folder, install_hint="get it"
    )


async def test_a_plugin_gives_the_token_once(tls: TlsServer, tmp_path: Path) -> None:
    plugin = make_plugin(
        tmp_path,
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "open(os.path.join(os.path.dirname(sys.argv[0]), 'runs'), 'a').write('.')\n"
        "token = '-'.join([sys.argv[1], os.environ['EXTRA'], info['apiVersion'].rpartition('/')[2]])\n"
        "print(json.dumps({'kind': 'ExecCredential', 'status': {'token': token}}))",
    )
    async with Client(Connection(server=tls.url, ca_data=tls.authority, exec_plugin=plugin)) as client:
        await send_one(client)
        await send_one(client)

    assert {shown for shown, _ in tls.seen} == {"Bearer arg-x-v1"}
    assert (tmp_path / "runs").read_text() == "."


async def test_a_plugin_that_gives_certificates_is_asked_again_when_they_expire(
    tls: TlsServer, tmp_path: Path
) -> None:
    answer = {
        "status": {
            "clientCertificateData": tls.client.certificate.decode(),
            "clientKeyData": tls.client.key.decode(),
            "expirationTimestamp": "2020-01-01T00:00:00Z",
        }
    }
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    plugin = make_plugin(tmp_path, f"print(open({str(tmp_path / 'answer.json')!r}).read())")
    async with Client(Connection(server=tls.url, ca_data=tls.authority, exec_plugin=plugin)) as client:
        await send_one(client)
        await send_one(client)

    assert tls.seen == [("", "a-client")] * 2


@pytest.mark.parametrize(
    ("body", "want"),
    [("sys.exit(3)", "exit code 3"), ("print('hello')", "no ExecCredential")],
)
async def test_a_plugin_that_fails_is_an_error_of_the_kubeconfig(
    tmp_path: Path, body: str, want: str
) -> None:
    connection = Connection(server="https://127.0.0.1:1", exec_plugin=make_plugin(tmp_path, body))
    with pytest.raises(errors.KubeconfigError, match=want):
        await ask(connection)


async def test_a_plugin_that_is_missing_says_how_to_get_it() -> None:
    plugin = ExecPlugin(command=("no-such-plugin-here",), install_hint="get it there")
    with pytest.raises(errors.KubeconfigError, match="cannot be started") as caught:
        await ask(Connection(server="https://127.0.0.1:1", exec_plugin=plugin))

    assert caught.value.hint == "get it there"


async def test_a_plugin_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "plugin_timeout_s", 0.05)
    plugin = make_plugin(tmp_path, "sys.stdin = None\nimport signal\nsignal.pause()")
    with pytest.raises(errors.KubeconfigError, match="took longer"):
        await ask(Connection(server="https://127.0.0.1:1", exec_plugin=plugin))


async def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(errors.KubeconfigError, match="scheme") as caught:
        await ask(Connection(server="ftp://x"))

    assert "unix:///" in caught.value.hint


@pytest.mark.parametrize("server", ["https://host:99999", "https://host:six", "https://[::1", "http://a..b"])
async def test_a_url_that_can_be_none_is_refused(server: str) -> None:
    with pytest.raises(errors.KubeconfigError, match="cannot be read"):
        await ask(Connection(server=server))


def test_certificates_are_loaded_by_the_first_connection_and_not_by_the_import() -> None:
    program = (
        "import ssl, gangline.kube.client\n"
        "from aiohttp import connector\n"
        "context = connector._SSL_CONTEXT_VERIFIED\n"
        "before = context.cert_store_stats()['x509']\n"
        "bio = ssl.MemoryBIO()\n"
        "context.wrap_bio(bio, bio, server_hostname='x')\n"
        "plain = ssl.create_default_context()\n"
        "after = context.cert_store_stats() == plain.cert_store_stats()\n"
        "print(before, after, type(context) is ssl.SSLContext)\n"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert output.stdout.split() == ["0", "True", "True"]
