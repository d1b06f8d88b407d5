"""The picture of a job in a notebook, which changes while the job goes on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from gangline.client.async_job import AsyncJobHandle
from gangline.client.followed_job import FollowedJob
from gangline.client.job_picture import job_picture
from gangline.client.loop_thread import LOOP, in_calling_thread
from gangline.clock import now
from gangline.errors import UserError
from gangline.workloads.job_start import JobRef
from gangline.workloads.job_view import JobView, view_job

Obj = dict[str, Any]

PERIOD_S = 0.2
"""Between two pictures."""
LINES_SHOWN = 8
LINE_CHARS_MAX = 200


class LivePicture(FollowedJob[object]):
    """Draws what a follower tells, at most five times a second.

    Args:
        draw: shows a piece of HTML in the place of the one before.
    """

    def __init__(self, draw: Callable[[str], None]) -> None:
        super().__init__(self._take_text)
        self.pods_changed = self._take_pods
        self._draw = draw
        self._view: JobView | None = None
        self.progress: Obj = {}
        self._text: deque[str] = deque([""], LINES_SHOWN + 1)
        self._drawn_s = 0.0

    def record(self, job: JobRef, record: Obj) -> None:
        """Keep the last record of progress."""
        super().record(job, record)
        if record.get("kind") == "progress":
            self.progress = record
            self.draw()

    def draw(self) -> None:
        """Draw, unless that was done a moment ago."""
        moment = time.monotonic()
        if self._view is None or moment - self._drawn_s < PERIOD_S:
            return
        self._drawn_s = moment
        self._draw(job_picture(self._view, progress=self.progress, lines=self.lines))

    @property
    def lines(self) -> list[str]:
        """The last lines of the log."""
        return [line[:LINE_CHARS_MAX] for line in self._text if line][-LINES_SHOWN:]

    def _take_pods(self, job: Obj, pods: list[Obj]) -> None:
        self._view = view_job(job, pods, now())
        self.draw()

    def _take_text(self, text: str) -> None:
        first, *others = text.split("\n")
        self._text[-1] += first
        self._text.extend(others)
        self.draw()


def show(job: AsyncJobHandle, timeout_s: float | None) -> JobView:
    """Show a job until it ends, and return how it stands then.

    Raises:
        UserError: IPython is not installed.
    """
    try:
        from IPython import display as found
    except ImportError:
        raise UserError(
            "the picture of a job needs IPython, which notebooks bring", hint="pip install ipython, or wait()"
        ) from None
    ipython: Any = found
    handle = ipython.display(ipython.HTML(""), display_id=True)

    def draw(text: str) -> None:
        handle.update(ipython.HTML(text))

    live = LivePicture(in_calling_thread(draw))
    LOOP.call(job.follow(live, timeout_s))
    assert job.view is not None
    draw(job_picture(job.view, progress=live.progress, lines=live.lines))
    return job.view
