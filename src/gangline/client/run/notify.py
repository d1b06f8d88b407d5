"""Tells a command or a web address that a run stalls, goes on, or has ended: ``gangline run --notify``."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangline.client.run.follow import FollowView
    from gangline.workloads.job_start import JobRef

LIMIT_S = 10.0
"""A notice takes so long at most; then it is given up, and said so."""


class Notifier:
    """Hands notices over, each in a thread of its own: a run waits for none of them until its end.

    A command gets the notice as JSON on standard input and in the variables GANGLINE_EVENT, GANGLINE_JOB and
    GANGLINE_TEXT; a web address gets the JSON by POST.

    Args:
        target: a shell's command line, or an address that begins with ``http://`` or ``https://``.
        say: is told once when a notice could not be handed over.
    """

    def __init__(self, target: str, say: Callable[[str], None]) -> None:
        self._target, self._say = target, say
        self._threads: list[threading.Thread] = []
        self._has_failed = False

    def tell(self, event: str, job: str, text: str) -> None:
        """Hand a notice over.

        Args:
            event: ``stalled``, ``notice``, ``succeeded`` or ``failed``.
            job: kind, namespace and name.
            text: a sentence or more.
        """
        thread = threading.Thread(target=self._hand_over, args=(event, job, text), daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Wait for what is under way, within bounds."""
        for thread in self._threads:
            thread.join(LIMIT_S + 1)

    def _hand_over(self, event: str, job: str, text: str) -> None:
        body = json.dumps({"event": event, "job": job, "text": text})
        try:
            if self._target.startswith(("http://", "https://")):
                head = {"Content-Type": "application/json"}
                request = urllib.request.Request(self._target, body.encode(), head)
                urllib.request.urlopen(request, timeout=LIMIT_S).close()
                return
            told = {"GANGLINE_EVENT": event, "GANGLINE_JOB": job, "GANGLINE_TEXT": text}
            subprocess.run(
                ["sh", "-c", self._target],
                input=body.encode(),
                env=os.environ | told,
                stdout=subprocess.DEVNULL,
                timeout=LIMIT_S,
                check=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            if not self._has_failed:
                self._has_failed = True
                self._say(f"warning: --notify {self._target}: {error}; the run goes on")


class NotifyingView:
    """A view of a run that also tells a notifier of stalls.

    Args:
        view: which shows all.
        notifier: is told of ranks that keep others waiting and go on.
    """

    def __init__(self, view: FollowView, notifier: Notifier) -> None:
        self._view, self._notifier = view, notifier

    def __getattr__(self, name: str) -> object:
        found: object = getattr(self._view, name)
        return found

    def notice(self, job: JobRef, text: str) -> None:
        """Ranks hang or go on, or pods were taken away."""
        self._view.notice(job, text)
        self._notifier.tell("notice", str(job), text)

    def record(self, job: JobRef, record: dict[str, object]) -> None:
        """A training said how it is."""
        self._view.record(job, record)
        if record["kind"] == "silence":
            text = (
                f"rank {record['rank']} on {record['node']} keeps others waiting since step {record['step']}"
            )
            self._notifier.tell("stalled", str(job), text)
