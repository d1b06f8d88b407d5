"""Who may do what, over TLS and the Unix socket; certificates, tokens, kubeconfig, health, version."""

import asyncio
import base64
import json
import shutil
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangline.cluster.certificates import TOKEN_KEY_FILE, Certificates
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.server import ApiServer
from gangline.cluster.server.store.store import StoreInUseError
from gangline.errors import ClusterError

Api = Any
"""The client of conftest.py."""

SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture
async def remote(api: Api) -> AsyncIterator[Api]:
    """The same client over TLS on loopback, with the strict checks of Python 3.13."""
    server = api.server
    context = ssl.create_default_context(cafile=str(server.paths.certificates / "ca.crt"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    connector = aiohttp.TCPConnector(ssl=context)
    base = f"https://127.0.0.1:{server.port}"
    async with aiohttp.ClientSession(connector=connector, base_url=base) as session:
        yield type(api)(session, server)


async def test_administrators_token_opens_everything_over_tls(remote: Api) -> None:
    token = remote.server.paths.token.read_text().strip()

    made = await remote.create(SECRETS, {"metadata": {"name": "s"}}, token=token)

    assert made["metadata"]["name"] == "s"


@pytest.mark.parametrize("token", ["", "wrong", "gl.ZGVmYXVsdC94.00", "gl.x.y", "gl..", "Basic x"])
async def test_without_a_valid_token_nothing_is_answered(remote: Api, token: str) -> None:
    status, body = await remote.request("GET", SECRETS, token=token)

    assert (status, body["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/healthz/", "/readyz?verbose"])
async def test_health_is_open(remote: Api, path: str) -> None:
    status, text = await remote.request("GET", path)

    assert status == 200 and "ok" in text


async def test_version_is_open_and_parses_for_clients(remote: Api) -> None:
    version = await remote.get("/version/", timeout="32s")

    assert version["major"] == "1" and version["gitVersion"].startswith("v1.35.")
    assert version["gitVersion"].endswith("+gangline")


JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
SESSION = {"annotations": {"gangline.dev/user-session": "machine"}}
SPEC = {"containers": [{"name": "c", "image": "gangline/base", "command": ["true"]}]}


async def test_a_service_account_cannot_have_pods_run_in_the_owners_session(api: Api, remote: Api) -> None:
    await api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "sa"}})
    _, request = await api.request(
        "POST", "/api/v1/namespaces/default/serviceaccounts/sa/token", {"spec": {}}
    )
    token = request["status"]["token"]
    theirs = {"metadata": {"name": "p"} | SESSION, "spec": SPEC}
    template = {"metadata": SESSION, "spec": SPEC | {"restartPolicy": "Never"}}
    await api.create(PODS, {"metadata": {"name": "owners"} | SESSION, "spec": SPEC})
    await remote.create(PODS, {"metadata": {"name": "own"}, "spec": SPEC}, token=token)
    add = [{"op": "add", "path": "/metadata/annotations", "value": SESSION["annotations"]}]
    applied = {"apiVersion": "v1", "kind": "Pod"} | theirs
    merge = "application/merge-patch+json"
    tries: list[tuple[str, str, Any, str]] = [
        ("POST", PODS, theirs, "application/json"),
        ("POST", JOBS, {"metadata": {"name": "j"}, "spec": {"template": template}}, "application/json"),
        ("PATCH", f"{PODS}/own", add, api.JSON_PATCH),
        ("PATCH", f"{PODS}/own", {"metadata": SESSION}, merge),
        ("PATCH", f"{PODS}/own", {"metadata": SESSION}, api.STRATEGIC),
        ("PATCH", f"{PODS}/p?fieldManager=m", applied, "application/apply-patch+yaml"),
        ("POST", f"{PODS}/own/binding", {"metadata": SESSION, "target": {"name": "n"}}, "application/json"),
        ("POST", f"{PODS}/owners/binding", {"target": {"name": "n"}}, "application/json"),
        ("PATCH", f"{PODS}/owners", {"metadata": {"labels": {"a": "b"}}}, merge),
        ("PATCH", f"{PODS}/owners", {"metadata": {"annotations": None}}, merge),
        ("PATCH", f"{PODS}/owners/status", {"status": {"phase": "Failed"}}, merge),
    ]

    for method, path, body, type_ in tries:
        status, answer = await remote.request(method, path, body, type_=type_, token=token)
        assert (status, answer["reason"]) == (403, "Forbidden"), (method, path, answer)
        assert "gangline.dev/user-session" in answer["message"]
    assert {pod["metadata"]["name"] for pod in (await api.get(PODS))["items"]} == {"owners", "own"}


async def test_service_account_works_in_its_namespace_and_reads_nodes(api: Api, remote: Api) -> None:
    await api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "sa"}})
    status, request = await api.request(
        "POST", "/api/v1/namespaces/default/serviceaccounts/sa/token", {"spec": {}}
    )
    token = request["status"]["token"]
    assert status == 201

    await remote.create(SECRETS, {"metadata": {"name": "s"}}, token=token)
    await remote.get("/api/v1/nodes", token=token)
    for method, path in (
        ("GET", "/api/v1/namespaces/kube-system/secrets"),
        ("GET", "/api/v1/secrets"),
        ("DELETE", "/api/v1/nodes/n1"),
        ("POST", "/api/v1/namespaces"),
    ):
        code, body = await remote.request(method, path, {"metadata": {"name": "x"}}, token=token)
        assert (code, body["reason"]) == (403, "Forbidden"), path
    code, body = await remote.request("GET", "/api/v1/namespaces/kube-system/secrets", token=token)
    assert body["message"] == (
        'secrets is forbidden: User "system:serviceaccount:default:sa" cannot list resource "secrets" '
        'in API group "" in the namespace "kube-system"'
    )


RBAC = "/apis/rbac.authorization.k8s.io/v1"
POD_READER = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]


async def account_token(api: Api, name: str = "sa") -> str:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await api.create(accounts, {"metadata": {"name": name}})
    answer = await api.create(f"{accounts}/{name}/token", {"spec": {}})
    return str(answer["status"]["token"])


def binding(role_kind: str, role: str, *subjects: dict[str, str]) -> dict[str, Any]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}
    return {"metadata": {"name": "b"}, "roleRef": reference, "subjects": list(subjects)}


ACCOUNT = {"kind": "ServiceAccount", "name": "sa", "namespace": "default"}
ALICE = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}


async def test_an_account_that_a_binding_names_has_what_its_bindings_give(api: Api, remote: Api) -> None:
    token = await account_token(api)
    await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": "reader"}, "rules": POD_READER})
    await api.create(f"{RBAC}/clusterrolebindings", binding("ClusterRole", "reader", ACCOUNT))

    await remote.get("/api/v1/pods", token=token)
    await remote.get("/api/v1/namespaces/kube-system/pods", token=token)
    for method, path in (("GET", SECRETS), ("POST", PODS), ("GET", "/api/v1/nodes")):
        status, _ = await remote.request(method, path, {"metadata": {"name": "x"}}, token=token)
        assert status == 403, path

    await api.delete(f"{RBAC}/clusterrolebindings/b")
    await remote.get(SECRETS, token=token)
    assert (await remote.request("GET", "/api/v1/pods", token=token))[0] == 403


async def test_nobody_gives_away_rights_that_it_lacks(api: Api, remote: Api) -> None:
    token = await account_token(api)
    every = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    manage = [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create", "patch"]}]
    roles, bindings = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
    await api.create(roles, {"metadata": {"name": "manager"}, "rules": manage + POD_READER})
    await api.create(bindings, binding("ClusterRole", "manager", ACCOUNT))

    await remote.create(roles, {"metadata": {"name": "less"}, "rules": POD_READER}, token=token)
    mine = binding("ClusterRole", "cluster-admin", ACCOUNT) | {"metadata": {"name": "mine"}}
    tries: list[tuple[str, str, Any, str]] = [
        ("POST", roles, {"metadata": {"name": "more"}, "rules": every}, "application/json"),
        ("POST", bindings, mine, "application/json"),
        ("PATCH", f"{roles}/less", {"rules": every}, "application/merge-patch+json"),
        ("PATCH", f"{roles}/more?fieldManager=m",
         {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": every},
         "application/apply-patch+yaml"),
    ]  # fmt: skip
    for method, path, body, type_ in tries:
        status, answer = await remote.request(method, path, body, type_=type_, token=token)
        assert (status, answer["reason"]) == (403, "Forbidden"), (method, path, answer)
        assert "not currently held" in answer["message"]


async def test_the_administrator_acts_as_others_and_others_only_where_they_may(api: Api, remote: Api) -> None:
    await api.create(f"{RBAC}/namespaces/default/rolebindings", binding("ClusterRole", "view", ALICE))
    as_alice = {"Impersonate-User": "alice", "Impersonate-Group": "staff"}
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    _, me = await api.request("POST", review, {}, headers=as_alice)

    assert me["status"]["userInfo"] == {"username": "alice", "groups": ["staff", "system:authenticated"]}
    for path, status in ((PODS, 200), (SECRETS, 403), ("/api/v1/pods", 403)):
        assert (await api.request("GET", path, headers=as_alice))[0] == status, path
    may = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"}}}
    ask = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await api.request("POST", ask, may, headers=as_alice))[1]["status"]["allowed"] is True
    may["spec"]["resourceAttributes"]["verb"] = "delete"
    assert (await api.request("POST", ask, may, headers=as_alice))[1]["status"]["allowed"] is False

    token = await account_token(api)
    status, answer = await remote.request("GET", PODS, token=token, headers=as_alice)
    assert status == 403
    assert answer["message"] == (
        'users "alice" is forbidden: User "system:serviceaccount:default:sa" cannot impersonate resource '
        '"users" in API group "" at the cluster scope'
    )
    assert (await api.request("GET", PODS, headers={"Impersonate-Group": "g"}))[0] == 400


async def test_a_review_goes_by_the_groups_that_it_names(api: Api) -> None:
    review = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
    asked = {"verb": "list", "resource": "configmaps", "namespace": "default"}
    groups = ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:default"]

    theirs = await api.create(review, {"spec": {"resourceAttributes": asked, "user": "e", "groups": groups}})
    nobodys = await api.create(review, {"spec": {"resourceAttributes": asked, "user": "e"}})

    assert (theirs["status"]["allowed"], nobodys["status"]["allowed"]) == (True, False)


async def test_rules_of_oneself_are_those_of_ones_bindings(api: Api) -> None:
    await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": "reader"}, "rules": POD_READER})
    await api.create(f"{RBAC}/namespaces/default/rolebindings", binding("ClusterRole", "reader", ALICE))
    ask = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    headers = {"Impersonate-User": "alice"}

    _, here = await api.request("POST", ask, {"spec": {"namespace": "default"}}, headers=headers)
    _, there = await api.request("POST", ask, {"spec": {"namespace": "kube-system"}}, headers=headers)

    assert here["status"]["resourceRules"] == POD_READER
    assert there["status"]["resourceRules"] == []


async def test_tokens_of_a_service_account_end_with_it(api: Api, remote: Api) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await api.create(accounts, {"metadata": {"name": "sa"}})
    token = (await api.create(f"{accounts}/sa/token", {"spec": {}}))["status"]["token"]
    await remote.get(SECRETS, token=token)

    await api.delete(f"{accounts}/sa")

    assert (await remote.request("GET", SECRETS, token=token))[0] == 401


async def test_reviews_say_who_one_is_and_what_one_may(api: Api) -> None:
    authentication, authorization = "/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1"
    me = await api.create(f"{authentication}/selfsubjectreviews", {})
    may = await api.create(
        f"{authorization}/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}},
    )
    other = await api.create(
        f"{authorization}/subjectaccessreviews",
        {
            "spec": {
                "user": "system:serviceaccount:a:b",
                "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "c"},
            }
        },
    )
    token = await api.create(f"{authentication}/tokenreviews", {"spec": {"token": "wrong"}})

    assert me["status"]["userInfo"]["username"] == "kubernetes-admin"
    assert may["status"]["allowed"] is True
    assert other["status"]["allowed"] is False
    assert token["status"]["authenticated"] is False


async def test_a_token_is_good_for_those_it_was_asked_for(api: Api, remote: Api) -> None:
    accounts, review = (
        "/api/v1/namespaces/default/serviceaccounts",
        "/apis/authentication.k8s.io/v1/tokenreviews",
    )
    made = await api.create(accounts, {"metadata": {"name": "sa"}})
    request = {"spec": {"audiences": ["vault"]}}
    token = (await api.create(f"{accounts}/sa/token", request))["status"]["token"]

    assert (await remote.request("GET", SECRETS, token=token))[0] == 401
    here = await api.create(review, {"spec": {"token": token}})
    there = await api.create(review, {"spec": {"token": token, "audiences": ["vault", "other"]}})

    assert here["status"]["authenticated"] is False
    assert there["status"]["audiences"] == ["vault"]
    assert there["status"]["user"]["username"] == "system:serviceaccount:default:sa"
    assert there["status"]["user"]["uid"] == made["metadata"]["uid"]
    (credential,) = there["status"]["user"]["extra"]["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("JTI=") and len(credential) > 10


async def test_whom_a_token_is_shown_to_finds_the_key_that_signed_it(api: Api, remote: Api) -> None:
    token = await account_token(api)
    _, about = await remote.request("GET", "/.well-known/openid-configuration", token=token)
    issuer, path = about["issuer"], about["jwks_uri"].removeprefix(about["issuer"])
    status, found = await remote.request("GET", path, token=token)
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in token.split(".")[:2])

    assert (status, claims["iss"]) == (200, issuer)
    assert [(key["kid"], key["alg"]) for key in json.loads(found)["keys"]] == [(header["kid"], header["alg"])]
    assert (await remote.request("GET", path, token=""))[0] == 401


async def test_files_that_hold_secrets_are_private(api: Api) -> None:
    paths: ClusterPaths = api.server.paths
    secret = [
        paths.token,
        paths.kubeconfig,
        paths.certificates / "ca.key",
        paths.certificates / "server.key",
        paths.certificates / TOKEN_KEY_FILE,
        paths.api_socket,
        paths.store,
    ]

    assert [stat.S_IMODE(path.stat().st_mode) for path in secret] == [0o600] * len(secret)


async def test_restart_keeps_token_and_certificates_and_goes_on_with_revisions(paths: ClusterPaths) -> None:
    first = ApiServer(paths)
    await first.start()
    kept = [paths.token.read_bytes(), (paths.certificates / "server.crt").read_bytes()]
    revision, port = first.context.store.revision, first.port
    await first.stop()

    second = ApiServer(paths, port=port)
    await second.start()
    try:
        assert [paths.token.read_bytes(), (paths.certificates / "server.crt").read_bytes()] == kept
        assert second.context.store.revision > revision, "no revision comes twice"
        assert f"server: https://127.0.0.1:{port}\n" in paths.kubeconfig.read_text()
    finally:
        await second.stop()
    assert not paths.api_socket.exists()


async def test_second_server_on_the_same_folder_is_refused(api: Api) -> None:
    other = ApiServer(api.server.paths)

    with pytest.raises(StoreInUseError):
        await other.start()

    assert (await api.get("/api/v1/namespaces"))["items"]


async def test_port_in_use_is_said(api: Api, tmp_path: Path) -> None:
    other = ApiServer(ClusterPaths("other", tmp_path / "other"), port=api.server.port)

    with pytest.raises(ClusterError, match=f"cannot listen on 127.0.0.1:{api.server.port}"):
        await other.start()
    shutil.rmtree(other.paths.run)


async def test_address_that_does_not_exist_yet_is_listened_on(paths: ClusterPaths) -> None:
    server = ApiServer(paths, extra_addresses=["10.213.77.1"])
    await server.start()
    await server.stop()


def test_certificate_is_made_anew_for_another_address_and_the_authority_stays(tmp_path: Path) -> None:
    Certificates(tmp_path, []).ensure()
    authority, server = ((tmp_path / name).read_bytes() for name in ("ca.crt", "server.crt"))

    Certificates(tmp_path, []).ensure()
    assert (tmp_path / "server.crt").read_bytes() == server
    Certificates(tmp_path, ["10.88.0.1", "host.example"]).ensure()

    assert (tmp_path / "server.crt").read_bytes() != server
    assert (tmp_path / "ca.crt").read_bytes() == authority


def test_a_process_of_its_own_makes_them_as_the_server_wants_them(tmp_path: Path) -> None:
    module = "gangline.cluster.certificates"
    subprocess.run([sys.executable, "-m", module, str(tmp_path / "pki"), "10.9.8.7"], check=True, timeout=60)
    assert Certificates(tmp_path / "pki", ["10.9.8.7"]).are_current()
    assert not Certificates(tmp_path / "pki", ["10.9.8.6"]).are_current()


def test_a_damaged_certificate_is_made_anew_and_a_damaged_authority_named(tmp_path: Path) -> None:
    Certificates(tmp_path, []).ensure()
    authority = (tmp_path / "ca.crt").read_bytes()
    (tmp_path / "server.crt").write_bytes(b"-----BEGIN CERTIFICATE-----\nx")

    Certificates(tmp_path, []).ssl_context()
    assert (tmp_path / "ca.crt").read_bytes() == authority

    (tmp_path / "server.key").write_bytes(b"x")
    (tmp_path / "ca.key").write_bytes(b"x")
    with pytest.raises(ClusterError, match="certificate authority in .* is damaged"):
        Certificates(tmp_path, []).ssl_context()


async def test_own_fault_is_answered_with_a_status(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(api.server.context.store, "get", broken)
    status, body = await api.request("GET", f"{SECRETS}/x")

    assert (status, body["reason"]) == (500, "InternalError")
    assert "on purpose" in body["message"]


async def test_many_connections_at_once(api: Api) -> None:
    answers = await asyncio.gather(*(api.get("/api/v1/namespaces") for _ in range(200)))

    assert all(len(answer["items"]) == 4 for answer in answers)
