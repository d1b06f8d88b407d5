"""Tokens of service accounts: signed with the cluster's key, which server and node agent have.

A token is a JSON Web Token with the claims of Kubernetes, signed by HMAC-SHA256 (RFC 7519, ``HS256``). It
ends at a time of its own, with its account, and with the pod that it was made for.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

import msgspec

KEY_FILE = "token.key"
"""Where the key lies in the cluster's folder of certificates."""

LIFETIME_S = 3600
"""Of a token whose request names no lifetime; a kubelet asks for the same."""

LIFETIME_MIN_S = 600
LIFETIME_MAX_S = 1 << 32
"""Bounds of a real API server."""

RENEW_AFTER = 0.8
RENEW_AFTER_MAX_S = 24 * 3600.0
"""A token in a pod is renewed after this part of its life, or after a day, as a kubelet does."""

TOKEN_CHARACTERS_MAX = 4096

ISSUER = "https://kubernetes.default.svc.cluster.local"
API_AUDIENCE = "https://kubernetes.default.svc"
"""Whom a token is for that names nobody: the API server."""


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


_HEADER = _base64(b'{"alg":"HS256","typ":"JWT"}')


def sign(key: bytes, token: AccountToken) -> str:
    """Return the text of a token. Cost: 10 microseconds."""
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
    text = f"{_HEADER}.{_base64(_encode(claims))}"
    return f"{text}.{_signature(key, text)}"


def read(key: bytes, text: str) -> AccountToken | None:
    """Return what a token says, None when the key did not sign it; whether it has ended is not looked at."""
    if len(text) > TOKEN_CHARACTERS_MAX or not text.isascii() or text.count(".") != 2:
        return None
    signed, _, signature = text.rpartition(".")
    header, _, body = signed.partition(".")
    if header != _HEADER or not hmac.compare_digest(signature, _signature(key, signed)):
        return None
    try:
        claims = _decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
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


def renew_at_s(now_s: float, lifetime_s: float) -> float:
    """Return when a token made now is replaced by the next one."""
    return now_s + min(lifetime_s * RENEW_AFTER, RENEW_AFTER_MAX_S)


def _signature(key: bytes, text: str) -> str:
    return _base64(hmac.new(key, text.encode(), hashlib.sha256).digest())
