"""Horovod's environment variables that mean something here, as one value. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

FUSION_BYTES = 128 << 20
CYCLE_MS = 1.0
CAPACITY = 8192
STALL_WARNING_S = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How the engine works.

    Attributes:
        fusion_bytes: a batch of tensors is reduced as one up to this size; 0 reduces each by itself.
        cycle_s: how long requests are collected before they are sent, unless somebody waits for one.
        capacity: names that are remembered.
        stall_warning_s: after this long a name that some ranks wait for is told; 0 tells none.
        stall_shutdown_s: after this long it is an error on all of them; 0 means never.
        timeline: file for the timeline, ``DYNAMIC`` for one that is started later, or ``""``.
        mark_cycles: show in it when requests were sent.
        dynamic_sets: process sets may be added while the job runs.
        group_fusion: several groups may be reduced as one.
        elastic: ranks may come and go while the job runs.
    """

    fusion_bytes: int = FUSION_BYTES
    cycle_s: float = CYCLE_MS / 1000
    capacity: int = CAPACITY
    stall_warning_s: float = STALL_WARNING_S
    stall_shutdown_s: float = 0.0
    timeline: str = ""
    mark_cycles: bool = False
    dynamic_sets: bool = False
    group_fusion: bool = True
    elastic: bool = False


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that variables ask for.

    Raises:
        ValueError: a variable is no number; the message names it.
    """
    values = os.environ if environment is None else environment

    def number(name: str, usual: float) -> float:
        text = values.get(name, "")
        try:
            return float(text) if text else usual
        except ValueError:
            raise ValueError(f"`{name}={text}` is no number") from None

    def switch(name: str) -> bool:
        return values.get(name, "").lower() not in ("", "0", "false")

    stall_check = not switch("HOROVOD_STALL_CHECK_DISABLE")
    return Settings(
        fusion_bytes=int(number("HOROVOD_FUSION_THRESHOLD", FUSION_BYTES)),
        cycle_s=number("HOROVOD_CYCLE_TIME", CYCLE_MS) / 1000,
        capacity=int(number("HOROVOD_CACHE_CAPACITY", CAPACITY)),
        stall_warning_s=number("HOROVOD_STALL_CHECK_TIME_SECONDS", STALL_WARNING_S) if stall_check else 0.0,
        stall_shutdown_s=number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0.0) if stall_check else 0.0,
        timeline=values.get("HOROVOD_TIMELINE", ""),
        mark_cycles=switch("HOROVOD_TIMELINE_MARK_CYCLES"),
        dynamic_sets=switch("HOROVOD_DYNAMIC_PROCESS_SETS"),
        group_fusion=not switch("HOROVOD_DISABLE_GROUP_FUSION"),
        elastic=switch("HOROVOD_ELASTIC"),
    )
