"""Who may have pods run in the session of the cluster's owner: the owner alone.

A service account may do everything in its namespace. Could it write the annotation, or change what carries
it, a pod would get the owner's files and environment by copying a line.
"""

from __future__ import annotations

from typing import Any

from gangline.cluster.server import status_errors
from gangline.cluster.server.http.request_context import RequestContext
from gangline.cluster.user_session import ANNOTATION, asks_for_session


def check(context: RequestContext, *states: dict[str, Any]) -> None:
    """Refuse a write by anybody but the owner when the object carries the annotation, before or after.

    Raises:
        StatusError: 403.
    """
    if context.user.is_admin or not any(map(asks_for_session, states)):
        return
    target = context.target
    name = target.name or str((states[-1].get("metadata") or {}).get("name", ""))
    raise status_errors.refused(
        target.served,
        name,
        f"objects with the annotation {ANNOTATION} are written by the cluster's owner only",
    )
