"""The programs that a job brings along, for the Python of whatever image its pods have."""

from __future__ import annotations

from pathlib import Path


def path_of(program: str) -> Path:
    """Return where a program of this package or the one around it is, ``rank_agent.py`` for example."""
    here = Path(__file__).with_name(program)
    return here if here.exists() else here.parent.parent / program


def source_of(program: str) -> str:
    """Return its text."""
    return path_of(program).read_text()
