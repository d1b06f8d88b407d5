"""Tokens in pods are replaced before they end, and only then."""

import base64
import errno
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.cluster.certificates import TOKEN_KEY_FILE, ensure_signing_key
from gangline.cluster.node.context import Objects
from gangline.kube.errors import Forbidden

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}, "spec": {"containers": []}}


def claims(folder: Path) -> dict[str, Any]:
    part = (folder / "token").read_text().split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "==")))


def test_a_token_is_the_pods_own_and_renewed_before_its_end(tmp_path: Path) -> None:
    clock = [1_000_000.0]
    (tmp_path / "ca.crt").write_text("CA")
    ensure_signing_key(tmp_path / TOKEN_KEY_FILE)
    objects = Objects(None, None, None, tmp_path, tmp_path / "pods", lambda: clock[0])  # type: ignore[arg-type]
    pod = msgspec.convert(POD, Pod)
    folder = objects.account_folder(pod)

    assert folder == tmp_path / "pods" / "u1" / "account"
    first = claims(folder)
    assert (first["kubernetes.io"]["pod"], first["exp"]) == ({"name": "p", "uid": "u1"}, 1_003_600)
    assert objects.renew_tokens([pod]) == []
    clock[0] += 0.79 * 3600
    assert objects.renew_tokens([pod]) == []
    assert claims(folder) == first
    clock[0] += 0.02 * 3600
    assert objects.renew_tokens([pod]) == [pod]
    assert claims(folder)["exp"] == int(clock[0]) + 3600


def test_an_agent_renews_what_the_one_before_it_left(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("CA")
    ensure_signing_key(tmp_path / TOKEN_KEY_FILE)
    pod = msgspec.convert(POD, Pod)
    before = Objects(None, None, None, tmp_path, tmp_path / "pods", lambda: 1.0)  # type: ignore[arg-type]
    folder = before.account_folder(pod)
    after = Objects(None, None, None, tmp_path, tmp_path / "pods", lambda: 9_000.0)  # type: ignore[arg-type]

    after.renew_tokens([pod])

    assert folder is not None
    assert claims(folder)["exp"] == 12_600


def test_a_full_disk_at_the_renewal_delays_it_and_no_more(tmp_path: Path, monkeypatch: Any) -> None:
    clock = [1_000_000.0]
    (tmp_path / "ca.crt").write_text("CA")
    ensure_signing_key(tmp_path / TOKEN_KEY_FILE)
    objects = Objects(None, None, None, tmp_path, tmp_path / "pods", lambda: clock[0])  # type: ignore[arg-type]
    pods = [
        msgspec.convert({**POD, "metadata": {**POD["metadata"], "uid": uid}}, Pod)
        for uid in ("u1", "u2", "u3")
    ]
    folders = [objects.account_folder(pod) for pod in pods]
    objects.renew_tokens(pods)
    clock[0] += 0.81 * 3600
    with monkeypatch.context() as full:
        full.setattr("gangline.cluster.node.context.write_projection", refuse_second())
        with pytest.raises(OSError, match="No space left"):
            objects.renew_tokens(pods)
    clock[0] += 60

    assert objects.renew_tokens(pods) == pods
    assert [claims(folder)["exp"] for folder in folders if folder] == [int(clock[0]) + 3600] * 3
    assert objects.renew_tokens(pods) == []


def refuse_second() -> Any:
    """Return a writer that refuses the second folder and writes nothing for the others."""
    calls = []

    def write(folder: Path, files: Any) -> bool:
        calls.append(folder)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return True

    return write


class TokenServer:
    """Gives tokens that tell what was asked for, numbered."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def create_subresource(self, resource: Any, name: str, part: str, body: Any, namespace: str) -> Any:
        assert (resource.plural, part) == ("serviceaccounts", "token")
        self.asked.append(body["spec"] | {"account": f"{namespace}/{name}"})
        return {"status": {"token": f"token {len(self.asked)}"}}


async def test_without_the_key_tokens_are_asked_for_and_renewed_before_their_end(tmp_path: Path) -> None:
    clock = [1_000_000.0]
    server = TokenServer()
    objects = Objects(server, None, None, tmp_path, tmp_path / "pods", lambda: clock[0])  # type: ignore[arg-type]
    source = {"serviceAccountToken": {"path": "t", "expirationSeconds": 600, "audience": "vault"}}
    volumes = [{"name": "v", "projected": {"sources": [source]}}]
    spec = {"containers": [], "serviceAccountName": "a", "volumes": volumes}
    pod = msgspec.convert(POD | {"spec": spec}, Pod)
    await objects.ensure(pod)

    (vault,) = [one for one in server.asked if one["audiences"] == ["vault"]]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"}
    assert vault["account"] == "ns/a"
    assert (vault["expirationSeconds"], vault["boundObjectRef"]) == (600, bound)
    first = objects.tokens(pod).token(600, "vault")
    assert first is not None
    assert await objects.renewed_tokens([pod]) == []
    clock[0] += 0.81 * 600
    assert await objects.renewed_tokens([pod]) == [pod]
    assert objects.tokens(pod).token(600, "vault") not in (None, first)


async def test_a_pod_that_is_refused_a_token_keeps_no_other_from_one(tmp_path: Path) -> None:
    class Refusing(TokenServer):
        async def create_subresource(self, resource: Any, name: str, *rest: Any) -> Any:
            if name == "going":
                raise Forbidden(403, "Forbidden", "the namespace is being terminated")
            return await super().create_subresource(resource, name, *rest)

    server = Refusing()
    objects = Objects(server, None, None, tmp_path, tmp_path / "pods")  # type: ignore[arg-type]
    volumes = [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
    pods = []
    for name in ("going", "stays"):
        spec = {"containers": [], "serviceAccountName": name, "volumes": volumes}
        pods.append(msgspec.convert(POD | {"metadata": {**POD["metadata"], "uid": name}, "spec": spec}, Pod))

    assert await objects.renewed_tokens(pods) == pods[1:]


async def test_a_pod_that_is_to_have_no_token_gets_none(tmp_path: Path) -> None:
    server = TokenServer()
    objects = Objects(server, None, None, tmp_path, tmp_path / "pods")  # type: ignore[arg-type]
    pod = msgspec.convert(POD, Pod)

    await objects.ensure(pod)

    assert (server.asked, objects.account_folder(pod)) == ([], None)
