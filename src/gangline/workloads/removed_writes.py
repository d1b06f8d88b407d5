"""What a pod wrote that went with it, as its status tells it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONDITION = "gangline.dev/WritesRemoved"
REASON = "WritesRemoved"
"""Of that condition, and of the event about the pod."""


def removed_writes(pod: Mapping[str, Any]) -> str:
    """Return in words what a pod wrote to places that went with it, empty for nothing of weight."""
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == CONDITION and condition.get("status") == "True":
            return str(condition.get("message") or "")
    return ""
