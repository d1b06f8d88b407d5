"""Where the GPUs of a node come from, and GPUs in words. Pure."""

from __future__ import annotations

from typing import Literal

SOURCE_LABEL = "gangline.dev/gpu-source"
"""Node label: where its GPUs come from. ``simulated`` says that they exist in name only."""

Source = Literal["nvml", "file", "simulated"]
SOURCES: tuple[Source, ...] = ("nvml", "file", "simulated")


def kind_of(source: str) -> str:
    """Return ``simulated`` or ``real`` for the value of the source label, empty for any other text."""
    if source == "simulated":
        return "simulated"
    return "real" if source in SOURCES else ""


def gpus_in_words(count: int, kind: str = "") -> str:
    """Return ``2 simulated GPUs``; ``kind`` may be empty where nobody knows.

    Example:
        >>> gpus_in_words(1, "real"), gpus_in_words(0, "real")
        ('1 real GPU', 'no GPU')
    """
    if not count:
        return "no GPU"
    return " ".join(filter(None, (str(count), kind, "GPU" if count == 1 else "GPUs")))
