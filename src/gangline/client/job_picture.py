"""A job as a piece of HTML, for notebooks: light and dark as they are, and text never as HTML. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from gangline.units import format_age
from gangline.workloads.job_view import JobView

INSTANCES_MAX = 16
_MARKS = {"SUCCEEDED": "\N{CHECK MARK}", "RUNNING": "\N{BLACK RIGHT-POINTING TRIANGLE}"}
_MARKS |= {"FAILED": "\N{BALLOT X}", "CANCELLED": "\N{BALLOT X}"}
_WAITS = "\N{HORIZONTAL ELLIPSIS}"


def job_picture(
    view: JobView, *, progress: Mapping[str, object] | None = None, lines: Sequence[str] = ()
) -> str:
    """Return status, progress, pods and the last lines of a log.

    Args:
        view: of the job.
        progress: the last record of its training.
        lines: the last of its log.
    """
    mark = _MARKS.get(view.status, _WAITS)
    head = f"<b>{escape(view.kind)} {escape(view.namespace)}/{escape(view.name)}</b>"
    parts = [f"<div>{mark} {head} {view.status.lower()}, {format_age(view.duration_s)}</div>"]
    if view.reason:
        parts.append(f"<div>{escape(view.reason)}</div>")
    if progress:
        parts.append(_progress(progress))
    rows = [
        f"<tr><td>{escape(one.name)}</td><td>{escape(one.status)}</td><td>{escape(one.node)}</td></tr>"
        for one in view.instances[:INSTANCES_MAX]
    ]
    if rows:
        heading = "<tr><th>POD</th><th>STATUS</th><th>NODE</th></tr>"
        more = len(view.instances) - len(rows)
        rest = f"<tr><td colspan=3>{_WAITS} {more} more</td></tr>" if more else ""
        parts.append(f"<table>{heading}{''.join(rows)}{rest}</table>")
    if lines:
        parts.append(f"<pre>{escape(chr(10).join(lines))}</pre>")
    return f"<div>{''.join(parts)}</div>"


def _progress(record: Mapping[str, object]) -> str:
    step, steps = record.get("step"), record.get("steps")
    words = [f"step {step}/{steps}" if steps else f"step {step}"]
    if isinstance(rate := record.get("rate"), int | float):
        words.append(f"{rate:,.1f} {record.get('unit') or 'items'}/s")
    if isinstance(loss := record.get("loss"), int | float):
        words.append(f"loss {loss:.4g}")
    bar = f'<progress value="{step}" max="{steps}"></progress> ' if _are_numbers(step, steps) else ""
    return f"<div>{bar}{escape('  '.join(words))}</div>"


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, int) for value in values)
