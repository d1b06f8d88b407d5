"""Tokens of service accounts: signed with the cluster's key, which server and node agent have.

A token is a JSON Web Token (RFC 7519) with the claims of Kubernetes, signed by ECDSA with P-256 and SHA-256
(RFC 7518, ``ES256``): whoever asks the API server for the public key can check it (OpenID Connect Discovery
1.0). It ends at a time of its own, with its account, and with the pod that it was made for.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LIFETIME_S = 3600
"""Of a token whose request names no lifetime; a kubelet asks for the same."""

LIFETIME_MIN_S = 600
LIFETIME_MAX_S = 1 << 32
"""Bounds of a real API server."""

RENEW_AFTER = 0.8
RENEW_AFTER_MAX_S = 24 * 3600.0
"""A token in a pod is renewed after this part of its life, or after a day, as a kubelet does."""

TOKEN_CHARACTERS_MAX = 4096
READ_KEPT = 256
"""Tokens whose signature is not checked again: a check takes 160 microseconds."""

ISSUER = "https://kubernetes.default.svc.cluster.local"
API_AUDIENCE = "https://kubernetes.default.svc"
"""Whom a token is for that names nobody: the API server."""

DISCOVERY_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"
KEYS_TYPE = "application/jwk-set+json"
_DISCOVERY = {
    "issuer": ISSUER,
    "jwks_uri": f"{ISSUER}{KEYS_PATH}",
    "response_types_supported": ["id_token"],
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["ES256"],
}


@dataclass(frozen=True, slots=True)
class AccountToken:
    """What a token says.

    Attributes:
        namespace, name: the service account.
        expires_s: seconds since the epoch at which it ends.
        pod, pod_uid: the pod that it belongs to; empty for none.
        account_uid: of the service account that it was made for; empty for whichever has the name.
        audiences: whom it is for; the API server takes it where ``API_AUDIENCE`` is among them.
        issued_s: seconds since the epoch at which it was made.
        id: by which one token is told from another.
    """

    namespace: str
    name: str
    expires_s: int
    pod: str = ""
    pod_uid: str = ""
    account_uid: str = ""
    audiences: tuple[str, ...] = (API_AUDIENCE,)
    issued_s: int = 0
    id: str = ""

    @property
    def subject(self) -> str:
        """The account as a user."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


class _Named(msgspec.Struct, omit_defaults=True):
    """An object that a token belongs to."""

    name: str = ""
    uid: str = ""


class _Kubernetes(msgspec.Struct, omit_defaults=True):
    """The claim ``kubernetes.io``."""

    namespace: str
    serviceaccount: _Named
    pod: _Named | None = None


class _Claims(msgspec.Struct, rename={"kubernetes": "kubernetes.io"}):
    """The claims of a token."""

    aud: tuple[str, ...]
    exp: int
    iat: int
    iss: str
    jti: str
    kubernetes: _Kubernetes
    nbf: int
    sub: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Claims, strict=True).decode


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class TokenKey:
    """The key pair of one cluster; read, and cryptography imported (4 MB), at the first use.

    Args:
        path: PEM of a private key on the curve P-256.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.read = lru_cache(READ_KEPT)(self._read)

    @cached_property
    def _private(self) -> EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        return cast("EllipticCurvePrivateKey", load_pem_private_key(self._path.read_bytes(), None))

    @cached_property
    def _public(self) -> dict[str, str]:
        """The public key (RFC 7517) with its thumbprint (RFC 7638) as its name."""
        point = self._private.public_key().public_numbers()
        x, y = (_base64(number.to_bytes(32, "big")) for number in (point.x, point.y))
        key = {"crv": "P-256", "kty": "EC", "x": x, "y": y}
        name = _base64(hashlib.sha256(_encode(key)).digest())
        return {**key, "use": "sig", "alg": "ES256", "kid": name}

    @cached_property
    def _header(self) -> str:
        return _base64(_encode({"alg": "ES256", "kid": self._public["kid"], "typ": "JWT"}))

    def keys(self) -> bytes:
        """Return the document at ``KEYS_PATH``."""
        return _encode({"keys": [self._public]})

    def sign(self, token: AccountToken) -> str:
        """Return the text of a token. Cost: 40 microseconds."""
        from cryptography.hazmat.primitives.asymmetric import ec, utils
        from cryptography.hazmat.primitives.hashes import SHA256

        claims = _Claims(
            aud=token.audiences,
            exp=token.expires_s,
            iat=token.issued_s,
            iss=ISSUER,
            jti=token.id,
            kubernetes=_Kubernetes(
                token.namespace,
                _Named(token.name, token.account_uid),
                _Named(token.pod, token.pod_uid) if token.pod else None,
            ),
            nbf=token.issued_s,
            sub=token.subject,
        )
        text = f"{self._header}.{_base64(_encode(claims))}"
        numbers = utils.decode_dss_signature(self._private.sign(text.encode(), ec.ECDSA(SHA256())))
        return f"{text}.{_base64(b''.join(number.to_bytes(32, 'big') for number in numbers))}"

    def _read(self, text: str) -> AccountToken | None:
        """Return what a token says, None when the key did not sign it; its end is not looked at."""
        if len(text) > TOKEN_CHARACTERS_MAX or not text.isascii() or text.count(".") != 2:
            return None
        signed, _, signature = text.rpartition(".")
        header, _, body = signed.partition(".")
        try:
            if header != self._header or not self._is_signed(signed, _bytes(signature)):
                return None
            claims = _decode(_bytes(body))
        except (binascii.Error, msgspec.MsgspecError):
            return None
        bound, pod = claims.kubernetes, claims.kubernetes.pod or _Named()
        return AccountToken(
            bound.namespace,
            bound.serviceaccount.name,
            claims.exp,
            pod=pod.name,
            pod_uid=pod.uid,
            account_uid=bound.serviceaccount.uid,
            audiences=claims.aud,
            issued_s=claims.iat,
            id=claims.jti,
        )

    def _is_signed(self, text: str, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec, utils
        from cryptography.hazmat.primitives.hashes import SHA256

        if len(signature) != 64:
            return False
        numbers = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
        encoded = utils.encode_dss_signature(*numbers)
        try:
            self._private.public_key().verify(encoded, text.encode(), ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


def discovery() -> bytes:
    """Return the document at ``DISCOVERY_PATH``."""
    return _encode(_DISCOVERY)


def renew_at_s(now_s: float, lifetime_s: float) -> float:
    """Return when a token made now is replaced by the next one."""
    return now_s + min(lifetime_s * RENEW_AFTER, RENEW_AFTER_MAX_S)
