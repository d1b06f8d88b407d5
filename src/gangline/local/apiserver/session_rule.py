"""Who may have pods run in the session of the cluster's owner: the owner alone.

A service account may do everything in its namespace. Could it write the annotation, or change what carries
it, a pod would get the owner's files and environment by copying a line.
"""

from __future__ import annotations

from typing import Any

from gangline.local.apiserver import failures
from gangline.local.apiserver.exchange import Exchange
from gangline.local.user_session import ANNOTATION, asks_for_session


def check(exchange: Exchange, *states: dict[str, Any]) -> None:
    """Refuse a write by anybody but the owner when the object carries the annotation, before or after.

    Raises:
        ApiFailure: 403.
    """
    if exchange.user.is_admin or not any(map(asks_for_session, states)):
        return
    target = exchange.target
    name = target.name or str((states[-1].get("metadata") or {}).get("name", ""))
    raise failures.refused(
        target.served,
        name,
        f"objects with the annotation {ANNOTATION} are written by the cluster's owner only",
    )
