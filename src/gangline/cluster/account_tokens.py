"""Tokens of service accounts: signed with the cluster's key, which server and node agent have.

``gl.CLAIMS.SIGNATURE``: the claims are JSON in base64url, the signature their HMAC-SHA256 in hex. A token
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


@dataclass(frozen=True, slots=True)
class AccountToken:
    """What a token says.

    Attributes:
        namespace, name: the service account.
        expires_s: seconds since the epoch at which it ends.
        pod, pod_uid: the pod that it belongs to; empty for none.
        account_uid: of the service account that it was made for; empty for whichever has the name.
    """

    namespace: str
    name: str
    expires_s: int
    pod: str = ""
    pod_uid: str = ""
    account_uid: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AccountToken, strict=True).decode


def sign(key: bytes, token: AccountToken) -> str:
    """Return the text of a token. Cost: 6 microseconds."""
    claims = base64.urlsafe_b64encode(_encode(token)).rstrip(b"=")
    return f"gl.{claims.decode()}.{_signature(key, claims)}"


def read(key: bytes, text: str) -> AccountToken | None:
    """Return what a token says, None when the key did not sign it; whether it has ended is not looked at."""
    if len(text) > TOKEN_CHARACTERS_MAX or not text.isascii() or text.count(".") != 2:
        return None
    kind, claims, signature = text.split(".")
    if kind != "gl" or not hmac.compare_digest(signature, _signature(key, claims.encode())):
        return None
    try:
        return _decode(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    except (binascii.Error, msgspec.MsgspecError):
        return None


def renew_at_s(now_s: float, lifetime_s: float) -> float:
    """Return when a token made now is replaced by the next one."""
    return now_s + min(lifetime_s * RENEW_AFTER, RENEW_AFTER_MAX_S)


def _signature(key: bytes, claims: bytes) -> str:
    return hmac.new(key, claims, hashlib.sha256).hexdigest()
