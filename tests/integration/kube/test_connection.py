"""How a connection is made: TLS, credentials that are renewed, plugins, what an import costs nobody."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tls_server import TlsServer, make_pair

from gangline.api.resources import PODS
from gangline.kube import credentials, errors
from gangline.kube.client import Client
from gangline.kube.config import Connection, ExecPlugin


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
