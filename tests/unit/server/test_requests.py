"""What a path, a header, a token or a log file means: no server runs here."""

import base64
import io
import json
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.cluster import log_files
from gangline.cluster.account_tokens import ISSUER, KEYS_PATH, AccountToken, discovery
from gangline.cluster.api_access import kubeconfig_text
from gangline.cluster.log_files import LogQuery, LogReader, tail_offset
from gangline.cluster.server.http.auth import ADMIN, Authenticator, service_account
from gangline.cluster.server.http.request_context import accepted_form, decode_body
from gangline.cluster.server.registry import Registry
from gangline.cluster.server.status_errors import StatusError


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/api/v1/pods", ("pods", "", "", "")),
        ("/api/v1/namespaces", ("namespaces", "", "", "")),
        ("/api/v1/namespaces/a", ("namespaces", "", "a", "")),
        ("/api/v1/namespaces/a/status", ("namespaces", "", "a", "status")),
        ("/api/v1/namespaces/a/finalize", ("namespaces", "", "a", "finalize")),
        ("/api/v1/namespaces/a/pods", ("pods", "a", "", "")),
        ("/api/v1/namespaces/a/pods/b", ("pods", "a", "b", "")),
        ("/api/v1/namespaces/a/pods/b/log", ("pods", "a", "b", "log")),
        ("/apis/batch/v1/namespaces/a/jobs/b/status", ("jobs", "a", "b", "status")),
        ("/apis/batch/v1/jobs", ("jobs", "", "", "")),
        ("/api/v1/nodes/n%2F1", ("nodes", "", "n/1", "")),
    ],
)
def test_path_means(path: str, want: tuple[str, str, str, str]) -> None:
    target = Registry().parse(path)

    assert (target.served.resource.plural, target.namespace, target.name, target.subresource) == want


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/x",
        "/api",
        "/api/v1",
        "/api/v2/pods",
        "/apis/batch/v1",
        "/apis/no/v1/jobs",
        "/api/v1/jobs",
        "/api/v1/namespaces/a/nodes",
    ],
)
def test_path_means_nothing(path: str) -> None:
    with pytest.raises(StatusError) as failure:
        Registry().parse(path)

    assert failure.value.code == 404 and not failure.value.details


@pytest.mark.parametrize(
    ("accept", "want"),
    [
        ("", "object"),
        ("*/*", "object"),
        ("application/json", "object"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "table"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "object"),
        ("application/vnd.kubernetes.protobuf,application/json", "object"),
        ("application/vnd.kubernetes.protobuf, */*", "object"),
        ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,"
         "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json", "metadata"),
        ("text/html, application/yaml", "object"),
    ],
)  # fmt: skip
def test_accept_header_chooses_the_form(accept: str, want: str) -> None:
    assert accepted_form(accept) == want


def test_client_that_takes_only_protobuf_is_refused() -> None:
    with pytest.raises(StatusError) as failure:
        accepted_form("application/vnd.kubernetes.protobuf")

    assert failure.value.code == 406


@settings(deadline=None)  # the first case imports
@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/yaml"]))
def test_any_bytes_are_an_object_or_a_bad_request(raw: bytes, type_: str) -> None:
    try:
        assert isinstance(decode_body(raw, type_), dict)
    except StatusError as failure:
        assert failure.code == 400


@given(st.binary(max_size=200))
def test_any_protobuf_bytes_are_an_object_or_a_bad_request(tail: bytes) -> None:
    for raw in (
        tail,
        b"k8s\0" + tail,
        b"k8s\0\n\x09\n\x02v1\x12\x03Pod\x12" + bytes([len(tail) % 128]) + tail,
    ):
        try:
            assert isinstance(decode_body(raw, "application/vnd.kubernetes.protobuf"), dict)
        except StatusError as failure:
            assert failure.code == 400


def test_tokens_are_told_apart_and_cannot_be_made_up(tmp_path: Path) -> None:
    tokens = Authenticator(tmp_path / "token", tmp_path / "key")
    other = Authenticator(tmp_path / "token2", tmp_path / "key2")
    account = AccountToken("team", "runner", 1 << 40)
    signed = tokens.tokens.sign(account)

    assert tokens.user_of(f"Bearer {tokens.token}") is ADMIN
    assert tokens.user_of(f"bearer {signed}") == service_account("team", "runner")
    assert tokens.user_of(f"Bearer {other.tokens.sign(account)}") is None
    assert tokens.user_of(f"Basic {tokens.token}") is None
    head, body, signature = signed.split(".")
    assert tokens.user_of_token(f"{head}.{body[:-1]}.{signature}") is None
    assert Authenticator(tmp_path / "token", tmp_path / "key").user_of_token(signed) is not None


@pytest.mark.parametrize(
    "token", ["\udcff", "é", "gl.é.é", "gl.x.\udcff", "gl..", "gl.e30.", "." * 9000, "gl.e30.00"]
)
def test_what_is_no_token_belongs_to_nobody(token: str, tmp_path: Path) -> None:
    assert Authenticator(tmp_path / "token", tmp_path / "key").user_of(f"Bearer {token}") is None


def test_a_token_is_a_json_web_token_with_the_claims_of_kubernetes(tmp_path: Path) -> None:
    tokens = Authenticator(tmp_path / "token", tmp_path / "key")
    account = AccountToken(
        "team", "runner", 1 << 40, pod="p", pod_uid="u", account_uid="a", issued_s=7, id="1"
    )

    header, claims, signature = (
        part + "=" * (-len(part) % 4) for part in tokens.tokens.sign(account).split(".")
    )

    key = json.loads(tokens.tokens.keys())["keys"][0]
    assert json.loads(base64.urlsafe_b64decode(header)) == {"alg": "ES256", "typ": "JWT", "kid": key["kid"]}
    assert json.loads(base64.urlsafe_b64decode(claims)) == {
        "aud": ["https://kubernetes.default.svc"],
        "exp": 1 << 40,
        "iat": 7,
        "iss": "https://kubernetes.default.svc.cluster.local",
        "jti": "1",
        "kubernetes.io": {
            "namespace": "team",
            "serviceaccount": {"name": "runner", "uid": "a"},
            "pod": {"name": "p", "uid": "u"},
        },
        "nbf": 7,
        "sub": "system:serviceaccount:team:runner",
    }
    assert len(base64.urlsafe_b64decode(signature)) == 64
    found = tokens.user_of_token(tokens.tokens.sign(account))
    assert found is not None and found.token == account


def test_a_token_without_a_signature_is_not_taken(tmp_path: Path) -> None:
    tokens = Authenticator(tmp_path / "token", tmp_path / "key")
    _, claims, signature = tokens.tokens.sign(AccountToken("team", "runner", 1 << 40)).split(".")
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()

    assert tokens.user_of_token(f"{unsigned}.{claims}.") is None
    assert tokens.user_of_token(f"{unsigned}.{claims}.{signature}") is None


def test_whoever_has_the_public_key_can_check_a_token(tmp_path: Path) -> None:
    tokens = Authenticator(tmp_path / "token", tmp_path / "key").tokens
    signed, _, signature = tokens.sign(AccountToken("team", "runner", 1 << 40)).rpartition(".")
    key = json.loads(tokens.keys())["keys"][0]

    def number(text: str) -> int:
        return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")

    public = ec.EllipticCurvePublicNumbers(number(key["x"]), number(key["y"]), ec.SECP256R1()).public_key()
    r, s = divmod(number(signature), 1 << 256)
    public.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(SHA256()))

    assert (key["kty"], key["crv"], key["use"], key["alg"]) == ("EC", "P-256", "sig", "ES256")
    assert json.loads(discovery())["jwks_uri"].removeprefix(ISSUER) == KEYS_PATH
    assert "d" not in key, "the private half stays here"


def test_a_damaged_key_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("torn")
    tokens = Authenticator(tmp_path / "token", tmp_path / "key").tokens

    assert tokens.read(tokens.sign(AccountToken("team", "runner", 1 << 40))) is not None


def test_a_token_for_others_is_not_for_the_server(tmp_path: Path) -> None:
    tokens = Authenticator(tmp_path / "token", tmp_path / "key")
    token = tokens.tokens.sign(AccountToken("team", "runner", 1 << 40, audiences=("vault",)))

    assert tokens.user_of_token(token) is None
    assert tokens.user_of_token(token, ["vault", "other"]) is not None


def test_a_token_ends_at_its_time(tmp_path: Path) -> None:
    tokens = Authenticator(tmp_path / "token", tmp_path / "key")
    now_s = int(time.time())

    assert tokens.user_of_token(tokens.tokens.sign(AccountToken("team", "runner", now_s + 60))) is not None
    assert tokens.user_of_token(tokens.tokens.sign(AccountToken("team", "runner", now_s - 1))) is None


def test_kubeconfig_names_the_cluster() -> None:
    text = kubeconfig_text("other", 6443, b"PEM", "secret")

    assert 'current-context: "gangline-other"' in text
    assert "server: https://127.0.0.1:6443" in text


lines = st.lists(st.tuples(st.sampled_from(["F", "P"]), st.text("ab €", max_size=12)), max_size=40).map(
    lambda records: [*records, ("F", "end")]
)


@given(lines, st.integers(0, 45), st.integers(1, 64))
def test_tail_is_the_end_of_the_whole(records: list[tuple[str, str]], count: int, block: int) -> None:
    text = "".join(f"2026-01-01T00:00:00.000000000Z stdout {tag} {line}\n" for tag, line in records)
    raw = text.encode()
    before = log_files.BLOCK_BYTES
    log_files.BLOCK_BYTES = block  # type: ignore[misc]
    try:
        offset = tail_offset(io.BytesIO(raw), count)
    finally:
        log_files.BLOCK_BYTES = before  # type: ignore[misc]

    kept = raw[offset:].decode().splitlines(keepends=True)
    whole = sum(1 for record in kept if record.split(" ", 3)[2] == "F")
    total = sum(1 for tag, _ in records if tag == "F")
    assert whole == min(count, total)
    assert text.endswith("".join(kept))
    # It begins at the beginning of a line, not in the middle of one that was split.
    assert offset == 0 or not kept or text.encode()[:offset].decode().splitlines()[-1].split(" ", 3)[2] == "F"


def test_reader_waits_for_the_end_of_a_record(tmp_path: Path) -> None:
    file = tmp_path / "0.log"
    file.write_text("2026-01-01T00:00:00.000000000Z stdout F one\n2026-01-01T00:00:00.0000")
    reader = LogReader(file, LogQuery())

    assert reader.read() == b"one\n"
    assert reader.read() == b""
    with file.open("a") as more:
        more.write("00000Z stdout F two\n")
    assert reader.read() == b"two\n"
    reader.close()
