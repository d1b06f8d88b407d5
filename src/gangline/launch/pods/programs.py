"""The programs that a job brings along, for the Python of whatever image its pods have."""

from __future__ import annotations

from pathlib import Path


def source_of(program: str) -> str:
    """Return the text of a program of this package or the one around it, ``rank_agent.py`` for example."""
    here = Path(__file__).with_name(program)
    return (here if here.exists() else here.parent.parent / program).read_text()
