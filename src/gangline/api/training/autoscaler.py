"""A HorizontalPodAutoscaler, as far as Gangline reads it."""

from __future__ import annotations

from typing import Any

from gangline.api.core import ObjectMeta, Wire


class Autoscaler(Wire, frozen=True, kw_only=True):
    """A HorizontalPodAutoscaler; its spec stays raw."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
