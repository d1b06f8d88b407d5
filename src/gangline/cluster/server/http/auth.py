"""Who asks.

Three kinds of callers: the administrator (bearer token of the cluster, or anybody who can open the Unix
socket, which only its owner can), service accounts (tokens signed with the cluster's key), and nobody, who
may ask for health and version only. What the others may do is in rbac; the administrator may also
act as anybody else (impersonation.py).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from gangline import clock
from gangline.cluster.account_tokens import API_AUDIENCE, AccountToken, TokenKey
from gangline.cluster.certificates import ensure_signing_key
from gangline.cluster.private_files import write_private
from gangline.cluster.server.store.store import Store

TOKEN_BYTES = 32
SERVICE_ACCOUNT_COLLECTION = "/serviceaccounts"
POD_COLLECTION = "/pods"
READ_VERBS = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    Attributes:
        name: user name, ``system:serviceaccount:NAMESPACE:NAME`` for service accounts.
        groups: groups.
        namespace: of a service account; None for everybody else.
        token: of a service account that has shown one.
    """

    name: str
    groups: tuple[str, ...]
    namespace: str | None = None
    token: AccountToken | None = field(default=None, compare=False)

    @property
    def is_admin(self) -> bool:
        """Whether everything is allowed."""
        return "system:masters" in self.groups


ADMIN = Caller("kubernetes-admin", ("system:masters", "system:authenticated"))


class Authenticator:
    """Tokens of one cluster. Files are made on first use with mode 0600.

    Attributes:
        tokens: of service accounts.

    Args:
        token_path: the administrator's token.
        key_path: the key that signs the tokens of service accounts.
    """

    def __init__(self, token_path: Path, key_path: Path) -> None:
        self._token = read_or_create(token_path).encode()
        ensure_signing_key(key_path)
        self.tokens = TokenKey(key_path)

    @property
    def token(self) -> str:
        """The administrator's token."""
        return self._token.decode()

    def user_of(self, authorization: str) -> Caller | None:
        """Return the user of an ``Authorization`` header, None when the token is not ours."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return None
        return self.user_of_token(token)

    def user_of_token(self, token: str, audiences: Collection[str] = (API_AUDIENCE,)) -> Caller | None:
        """Return the user of a token, None when it is not ours, or for none of the audiences."""
        if hmac.compare_digest(token.encode(errors="replace"), self._token):
            return ADMIN
        found = self.tokens.read(token)
        if found is None or found.expires_s <= clock.now().timestamp():
            return None
        if not set(audiences).intersection(found.audiences):
            return None
        return service_account(found.namespace, found.name, found)


def is_there(store: Store, user: Caller) -> bool:
    """Whether a service account still exists, and the pod that its token was made for: with them it ends."""
    if user.namespace is None or user.token is None:
        return True
    token = user.token
    account = store.get(SERVICE_ACCOUNT_COLLECTION, token.namespace, token.name)
    if account is None or token.account_uid not in ("", account.obj["metadata"]["uid"]):
        return False
    if not token.pod_uid:
        return True
    pod = store.get(POD_COLLECTION, token.namespace, token.pod)
    return pod is not None and pod.obj["metadata"]["uid"] == token.pod_uid


def service_account(namespace: str, name: str, token: AccountToken | None = None) -> Caller:
    """Return the user that a service account is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return Caller(f"system:serviceaccount:{namespace}:{name}", groups, namespace, token)


def read_or_create(path: Path) -> str:
    """Return the secret in a file, making one (mode 0600) on first use and where the file is damaged."""
    try:
        text = path.read_text().strip()
        if text.isprintable() and text.isascii() and text:
            return text
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    text = secrets.token_urlsafe(TOKEN_BYTES)
    write_private(path, text.encode())
    return text
