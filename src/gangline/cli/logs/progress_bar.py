"""The bar below the log: how far a training is, drawn on the terminal's last line from its records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

from gangline.units import format_age

BAR_WIDTH_MAX = 30
_ERASE = "\r\x1b[2K"


def bar_text(record: dict[str, Any], width: int, *, name: str = "", late: Collection[str] = ()) -> str:
    """Return one line of at most `width` characters.

    Args:
        record: of kind ``progress``, as `gangline.train.records` describes it.
        width: columns of the terminal.
        name: of the job, where there are several.
        late: the ranks that keep the others waiting, instead of rate and time left.
    """
    step, steps = int(record.get("step", 0)), int(record.get("steps") or 0)
    parts = [f"step {step}/{steps}" if steps else f"step {step}"]
    if late:
        parts.append(f"waits for rank{'s' * (len(late) > 1)} {', '.join(late)}")
    elif (rate := record.get("rate")) is not None:
        parts.append(f"{float(rate):,.1f} {record.get('unit', 'images')}/s")
    if (loss := record.get("loss")) is not None and not late:
        parts.append(f"loss {float(loss):.4f}")
    if (eta_s := record.get("eta_s")) and not late:
        parts.append(f"ETA {format_age(float(eta_s))}")
    head, text = f"{name} " if name else "", "  ".join(parts)
    room = min(BAR_WIDTH_MAX, width - len(head) - len(text) - 9)
    if steps and room >= 5:
        share = min(1.0, step / steps)
        filled = int(share * room)
        text = f"{'━' * filled}{'╌' * (room - filled)} {share:4.0%}  {text}"
    return f"{head}{text}"[: max(0, width - 1)]


class ProgressBar:
    """Draws the newest record below a log, which is written through `write`."""

    def __init__(self) -> None:
        self._record: dict[str, Any] = {}
        self._name = ""
        self._late: dict[int, str] = {}
        self._is_drawn = False
        self._is_line_whole = True

    def update(self, record: dict[str, Any], *, name: str = "") -> None:
        """Take a record and draw; records of kinds that say nothing of progress change nothing."""
        match record.get("kind"):
            case "progress":
                self._record, self._name = record, name
                self._late.clear()  # a step is done by all ranks
            case "silence":
                self._late[int(record.get("rank", 0))] = f"{record.get('rank')} on {record.get('node')}"
            case "going-on":
                self._late.pop(int(record.get("rank", 0)), None)
        self.draw()

    def write(self, data: bytes, sink: Callable[[bytes], object], *, in_whole_lines: bool = False) -> None:
        """Write a piece of the log above the bar.

        Args:
            data: the piece.
            sink: writes it to where it can be seen at once.
            in_whole_lines: the sink holds unfinished lines back.
        """
        self.erase()
        sink(data)
        if data:
            self._is_line_whole = in_whole_lines or data.endswith(b"\n")
        self.draw()

    def draw(self) -> None:
        """Draw the bar, unless the cursor is within a line."""
        if self._record and self._is_line_whole:
            import shutil

            width = shutil.get_terminal_size().columns
            text = bar_text(self._record, width, name=self._name, late=self._late.values())
            sys.stderr.write(f"{_ERASE}{text}")
            sys.stderr.flush()
            self._is_drawn = True

    def erase(self) -> None:
        """Take the bar away."""
        if self._is_drawn:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
            self._is_drawn = False
