"""The bar below the log: how far a training is, drawn on the terminal's last line from its records."""

from __future__ import annotations

import sys
from typing import Any

from gangline.units import format_age

BAR_WIDTH_MAX = 30
_ERASE = "\r\x1b[2K"


def bar_text(record: dict[str, Any], width: int, *, name: str = "") -> str:
    """Return one line of at most `width` characters.

    Args:
        record: of kind ``progress``, as `gangline.train.records` describes it.
        width: columns of the terminal.
        name: of the job, where there are several.
    """
    step, steps = int(record.get("step", 0)), int(record.get("steps") or 0)
    parts = [f"step {step}/{steps}" if steps else f"step {step}"]
    if (rate := record.get("rate")) is not None:
        parts.append(f"{float(rate):,.1f} {record.get('unit', 'images')}/s")
    if (loss := record.get("loss")) is not None:
        parts.append(f"loss {float(loss):.4f}")
    if eta_s := record.get("eta_s"):
        parts.append(f"ETA {format_age(float(eta_s))}")
    head, text = f"{name} " if name else "", "  ".join(parts)
    room = min(BAR_WIDTH_MAX, width - len(head) - len(text) - 9)
    if steps and room >= 5:
        share = min(1.0, step / steps)
        filled = int(share * room)
        text = f"{'━' * filled}{'╌' * (room - filled)} {share:4.0%}  {text}"
    return f"{head}{text}"[: max(0, width - 1)]


class ProgressBar:
    """Draws the newest record below the log; `erase` before writing, `draw` after a whole line."""

    def __init__(self) -> None:
        self._text = ""
        self._is_drawn = False

    def update(self, record: dict[str, Any], *, name: str = "") -> None:
        """Take a record; records of other kinds than progress change nothing."""
        if record.get("kind") == "progress":
            import shutil

            self._text = bar_text(record, shutil.get_terminal_size().columns, name=name)

    def draw(self) -> None:
        """Draw the bar; the cursor must be at the beginning of a line."""
        if self._text:
            sys.stderr.write(f"{_ERASE}{self._text}")
            sys.stderr.flush()
            self._is_drawn = True

    def erase(self) -> None:
        """Take the bar away."""
        if self._is_drawn:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
            self._is_drawn = False
