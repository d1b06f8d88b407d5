"""Tokens in pods are replaced before they end, and only then."""

import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.cluster.account_tokens import TokenKey
from gangline.cluster.certificates import TOKEN_KEY_FILE, ensure_signing_key
from gangline.cluster.node.context import Objects
from gangline.kube.errors import Forbidden

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}, "spec": {"containers": []}}


def expires_s(token: str | None) -> int:
    assert token is not None
    return int(json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["exp"])


async def test_a_token_is_the_pods_own_and_renewed_before_its_end(tmp_path: Path) -> None:
    clock = [1_000_000.0]
    ensure_signing_key(tmp_path / TOKEN_KEY_FILE)
    objects = Objects(None, None, None, tmp_path, lambda: clock[0])  # type: ignore[arg-type]
    pod = msgspec.convert(POD, Pod)
    token = partial(objects.tokens(pod).token, 3600, "")
    first = token()

    read = TokenKey(tmp_path / TOKEN_KEY_FILE).read(str(first))
    assert read is not None
    assert (read.pod, read.pod_uid, read.expires_s) == ("p", "u1", 1_003_600)
    clock[0] += 0.79 * 3600
    assert await objects.renewed_tokens([pod]) == []
    assert token() == first
    clock[0] += 0.02 * 3600
    assert await objects.renewed_tokens([pod]) == [pod]
    assert expires_s(token()) == int(clock[0]) + 3600


async def test_tokens_of_pods_that_ended_are_forgotten(tmp_path: Path) -> None:
    clock = [1_000_000.0]
    ensure_signing_key(tmp_path / TOKEN_KEY_FILE)
    objects = Objects(None, None, None, tmp_path, lambda: clock[0])  # type: ignore[arg-type]
    pod = msgspec.convert(POD, Pod)
    first = objects.tokens(pod).token(3600, "")

    await objects.renewed_tokens([])

    assert objects.tokens(pod).token(3600, "") != first


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
    objects = Objects(server, None, None, tmp_path, lambda: clock[0])  # type: ignore[arg-type]
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
    objects = Objects(server, None, None, tmp_path)  # type: ignore[arg-type]
    volumes = [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
    pods = []
    for name in ("going", "stays"):
        spec = {"containers": [], "serviceAccountName": name, "volumes": volumes}
        pods.append(msgspec.convert(POD | {"metadata": {**POD["metadata"], "uid": name}, "spec": spec}, Pod))

    assert await objects.renewed_tokens(pods) == pods[1:]


async def test_a_pod_that_is_to_have_no_token_gets_none(tmp_path: Path) -> None:
    server = TokenServer()
    objects = Objects(server, None, None, tmp_path)  # type: ignore[arg-type]
    pod = msgspec.convert(POD, Pod)

    await objects.ensure(pod)

    assert server.asked == []
