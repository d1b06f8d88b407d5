"""What a gang has had so far."""

from __future__ import annotations

import msgspec


class AttainedService(msgspec.Struct, frozen=True, kw_only=True):
    """What a gang has had before its present run, and whether it can be interrupted.

    Attributes:
        is_resumable: it goes on from a checkpoint when it is started again.
        device_s: device-seconds that it has held.
        suspensions: how often it was suspended.
    """

    is_resumable: bool = False
    device_s: float = 0.0
    suspensions: int = 0
