"""Pods that were deleted and whose node does not say that they ended, as that of a node that is lost. Pure.

Kubernetes keeps such a pod for as long as there is a Node object: its program may still run and write.
Whatever makes a pod of the same name anew, and all of its gang, waits for it. Source: Kubernetes
documentation, "Force Delete StatefulSet Pods" and "Non-graceful node shutdown".
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from gangline.clock import parse_time
from gangline.workloads.pending import PendingReason

TERMINATING = "Terminating"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

END_LATE_S = 30.0
"""A node that has not confirmed the end of a pod so long after its grace period is taken not to answer."""


class UnconfirmedEnd(NamedTuple):
    """A pod on its way out.

    Attributes:
        pod: its name. node: the name of its node.
        due: when it should have ended, RFC 3339: its ``deletionTimestamp``.
    """

    pod: str
    node: str
    due: str


def unconfirmed_end(
    ends: Iterable[UnconfirmedEnd], now: datetime
) -> tuple[PendingReason | None, float | None]:
    """Return the reason of pods whose end is late, if any, and in how many seconds the next one will be."""
    late, soon_s = [], []
    for end in sorted(ends):
        left_s = (parse_time(end.due) - now).total_seconds() + END_LATE_S
        if left_s > 0:
            soon_s.append(left_s)
        else:
            late.append(end)
    return (waits_for_end(late[0], len(late) - 1) if late else None), min(soon_s, default=None)


def waits_for_end(end: UnconfirmedEnd, others: int = 0) -> PendingReason:
    """Return why a gang waits for the end of a pod and so many others, with the way on."""
    more = f" (and {others} more)" if others else ""
    return PendingReason(
        TERMINATING,
        f"pod {end.pod}{more} was deleted, and node {end.node} does not confirm its end: "
        f"if it is lost, `kubectl delete node {end.node}` or the taint {OUT_OF_SERVICE} lets it go",
    )
