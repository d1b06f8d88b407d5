"""The lines of NVIDIA's DLLogger, on standard output and in its JSON file. Pure but for ``JsonLog``.

Source: DLLogger's ``StdOutBackend`` and ``JSONStreamBackend``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

Step = str | tuple[int, ...]


def line(when: datetime, step: Step, data: Mapping[str, Any]) -> str:
    """Return a line of standard output; ``step``: (epoch, step), () for the whole run, or a word.

    Example:
        >>> line(datetime(2026, 1, 2, 3, 4, 5, 6), (), {"train_throughput": 320.5})
        'DLL 2026-01-02 03:04:05.000006 - () train_throughput : 320.5 '
    """
    return f"DLL {when} - {step} " + " ".join(f"{name} : {value} " for name, value in data.items())


def json_line(when: datetime, since: datetime, step: Step, data: Mapping[str, Any]) -> str:
    """Return a line of the JSON file."""
    record = {
        "timestamp": str(when.timestamp()),
        "datetime": str(when),
        "elapsedtime": str((when - since).total_seconds()),
        "type": "LOG",
        "step": step,
        "data": data,
    }
    return f"DLLL {json.dumps(record)}"


class JsonLog:
    """The JSON file of a run.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        self._since = datetime.now().astimezone().replace(tzinfo=None)

    def log(self, when: datetime, step: Step, data: Mapping[str, Any]) -> None:
        """Write a line at once."""
        self._file.write(json_line(when, self._since, step, data) + "\n")
        self._file.flush()
