"""Whether a node is alive, and which pods its absence leaves behind. Pure.

The sign of life is a change of the node's Lease, timed by our own steady clock: a machine that was asleep, or
whose clock was set, does not look dead. A node is given a whole grace after the start of the controller.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangline.api.core import Node, Pod, find_condition
from gangline.placement.filters import is_tolerated
from gangline.workloads.unconfirmed_end import OUT_OF_SERVICE

LEASE_GRACE_S = 40.0
"""A node whose lease has not changed for this long is taken to be dead (as in Kubernetes)."""

OWN_NODE_LABEL, OWN_NODE_VALUE = "gangline.dev/agent", "local"
SILENT_REASON = "NodeStatusUnknown"
SILENT_MESSAGE = "The node agent stopped renewing its lease."
BACK_REASON = "KubeletReady"
BACK_MESSAGE = "The node agent renews its lease again."


class Health(msgspec.Struct, frozen=True):
    """What is to be written about a node.

    Attributes:
        condition: a new ``Ready`` condition, or None.
        look_again_s: when the verdict may change; None when only a change can.
    """

    condition: dict[str, Any] | None = None
    look_again_s: float | None = None


def is_own(node: Node) -> bool:
    """Return whether a node is run by this cluster's node agent."""
    return node.metadata.labels.get(OWN_NODE_LABEL) == OWN_NODE_VALUE


def judge_node(node: Node, *, silent_s: float, when: str) -> Health:
    """Return what is to be said about one of our nodes.

    Args:
        node: the node.
        silent_s: seconds since its lease changed, or since the controller started.
        when: the time now, as it is written.
    """
    ready = find_condition(node.status.conditions, "Ready")
    if silent_s < LEASE_GRACE_S:
        again_s = LEASE_GRACE_S - silent_s
        if ready is not None and ready.status == "Unknown" and ready.reason == SILENT_REASON:
            return Health(_ready("True", BACK_REASON, BACK_MESSAGE, when), again_s)
        return Health(None, again_s)
    if ready is None or ready.status == "Unknown":
        return Health()
    return Health(_ready("Unknown", SILENT_REASON, SILENT_MESSAGE, when))


def _ready(status: str, reason: str, message: str, when: str) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": when,
        "lastHeartbeatTime": when,
    }


def stay_s(node: Node, pod: Pod) -> float | None:
    """Return how long a pod puts up with ``NoExecute`` taints of its node: 0 for not at all, None for ever.

    Source: Kubernetes documentation, "Taints and tolerations", taint based evictions.
    """
    times = []
    for taint in node.spec.taints:
        if taint.effect != "NoExecute":
            continue
        covering = [one for one in pod.spec.tolerations if is_tolerated(taint, (one,))]
        if not covering:
            return 0.0
        times += [max(one.toleration_seconds, 0) for one in covering if one.toleration_seconds is not None]
    return float(min(times)) if times else None


def is_out_of_service(node: Node) -> bool:
    """Return whether somebody vouches that nothing runs any more on a node that does not answer.

    Source: Kubernetes documentation, "Non-graceful node shutdown".
    """
    return not node.is_ready and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def tainted_pod_status(pod: Pod, when: str) -> dict[str, Any]:
    """Return a patch of the status of a pod that has to leave its node."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": when,
    }
    return {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}


def given_up_pod_status(pod: Pod) -> dict[str, Any]:
    """Return a patch of the status of a pod that was deleted, and whose node is out of service: failed."""
    return {"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed"}}


def lost_pod_status(pod: Pod, when: str) -> dict[str, Any]:
    """Return a patch of the status of a pod whose node is gone: failed, by a disruption."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": when,
    }
    return {
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "phase": "Failed",
            "reason": "NodeLost",
            "message": f"Node {pod.spec.node_name} no longer exists",
            "conditions": [condition],
        },
    }
