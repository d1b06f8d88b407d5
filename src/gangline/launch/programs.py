"""The programs that a job brings along, for the Python of whatever image its pods have."""

from __future__ import annotations

from pathlib import Path


def source_of(program: str) -> str:
    """Return the text of a program of this package, ``rank_agent.py`` for example."""
    return Path(__file__).with_name(program).read_text()
