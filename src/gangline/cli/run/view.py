"""What ``gangline run`` shows: plain lines, or on a terminal a table of pods above the log.

The log goes to standard output untouched, everything else to standard error.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from gangline.cli.logs.progress_bar import ProgressBar
from gangline.cli.output import say
from gangline.client.jobs.gpu_kind import gpu_cell, gpus_of_pods
from gangline.client.run.advice import advice_for
from gangline.units import format_age, plural
from gangline.workloads.job_start import (
    JobRef,
    all_started,
    current_pods,
    is_started,
    job_ref,
    pods_in_words,
)
from gangline.workloads.job_state import expected_pods
from gangline.workloads.pending import (
    PendingReason,
)
from gangline.workloads.pod_state import read_pod_state
from gangline.workloads.requests import pod_gpus

if TYPE_CHECKING:
    from rich.live import Live

Obj = dict[str, Any]

ROWS_MAX = 16


class PlainView:
    """Lines for a pipe or a log file: pods once when they all run, then the log."""

    def __init__(
        self, *, prefix_logs: bool = False, started_s: float | None = None, gpu_kind: str = ""
    ) -> None:
        self._prefix = prefix_logs
        self._gpu_kind = gpu_kind
        self._gpus: dict[str, str] = {}
        self._rests: dict[str, bytes] = {}
        self._running: set[str] = set()
        self._advised: set[tuple[JobRef, str]] = set()
        self._started = time.monotonic() if started_s is None else started_s

    def gpus_of(self, job: JobRef) -> str:
        """Return ``2 simulated GPUs`` for what the pods of a job had, empty for none."""
        return self._gpus.get(job.uid, "")

    def _note_gpus(self, job: Obj, pods: list[Obj]) -> None:
        pods = current_pods(job, pods)
        if len(pods) >= expected_pods(job):
            self._gpus[job_ref(job).uid] = gpus_of_pods(pods, self._gpu_kind)

    def pods_changed(self, job: Obj, pods: list[Obj]) -> None:
        """Say once that every pod of a job has started, and where; a short one may be over by then."""
        self._note_gpus(job, pods)
        pods = current_pods(job, pods)
        ref = job_ref(job)
        if ref.uid in self._running or not pods or not all_started(job, pods):
            return
        self._running.add(ref.uid)
        nodes = {pod["spec"].get("nodeName") for pod in pods}
        took_s = time.monotonic() - self._started
        gpus = f", {self.gpus_of(ref)}" if self.gpus_of(ref) else ""
        where = f"{pods_in_words(job, pods)} on {plural(len(nodes), 'node')}{gpus}"
        say(f"{ref}: {where}, {took_s:.1f} s")

    def succeeded(self, job: Obj, pods: list[Obj]) -> None:
        """Say what was seen of a job that was over before all of its pods were seen."""
        if job_ref(job).uid not in self._running:
            seen = sum(map(is_started, current_pods(job, pods)))
            say(f"{job_ref(job)}: {seen} of {plural(expected_pods(job), 'pod')} seen before it was over")

    def pending_reason_of(self, job: Obj, pod: Obj, reason: PendingReason) -> None:
        """Say why a pod cannot start, and what to do."""
        say(f"{job_ref(job)}: {reason}")
        if advice := self._if_new(job_ref(job), advice_for(job, pod, reason)):
            say(f"hint: {advice}")

    def _if_new(self, job: JobRef, advice: str) -> str:
        """Return what to do, empty where that has been said of this job."""
        if (job, advice) in self._advised:
            return ""
        self._advised.add((job, advice))
        return advice

    def notice(self, job: JobRef, text: str) -> None:
        """Say what happened to a job that runs: ranks hang or go on, pods were taken away."""
        say(f"{job}: {text}")

    def log(self, job: JobRef, data: bytes) -> None:
        """Write a piece of the log; with several jobs in whole lines behind the job's name."""
        out = sys.stdout.buffer
        if not self._prefix:
            out.write(data)
            out.flush()
            return
        name = job.name
        *lines, self._rests[name] = (self._rests.get(name, b"") + data).split(b"\n")
        for line in lines:
            out.write(f"[{name}] ".encode() + line + b"\n")
        out.flush()

    def record(self, job: JobRef, record: Obj) -> None:
        """A training said how far it is; in plain lines its own line in the log says the same."""

    def close(self) -> None:
        """Write what is left of lines without an end."""
        for name, rest in self._rests.items():
            if rest:
                sys.stdout.buffer.write(f"[{name}] ".encode() + rest + b"\n")
        self._rests.clear()
        sys.stdout.flush()


class LiveView(PlainView):
    """A table of pods that changes in place until the log begins; then it stays above the log."""

    def __init__(
        self, *, prefix_logs: bool = False, started_s: float | None = None, gpu_kind: str = ""
    ) -> None:
        super().__init__(prefix_logs=prefix_logs, started_s=started_s, gpu_kind=gpu_kind)
        self._live: Live | None = None
        self._closed = False
        self._bar = ProgressBar()
        self._pods: dict[str, tuple[Obj, list[Obj]]] = {}

    def pods_changed(self, job: Obj, pods: list[Obj]) -> None:
        """Show the pods as they are now."""
        self._note_gpus(job, pods)
        self._pods[job_ref(job).uid] = (job, pods)
        if self._closed or not pods:
            return
        live = self._open()
        live.update(self._table(), refresh=True)

    def succeeded(self, job: Obj, pods: list[Obj]) -> None:
        """The table has shown the pods."""

    def pending_reason_of(self, job: Obj, pod: Obj, reason: PendingReason) -> None:
        """Say why a pod cannot start, above the table."""
        if self._live is not None and not self._closed:
            self._live.console.print(f"[yellow]{job_ref(job)}[/]: ", end="")
            self._live.console.print(str(reason), markup=False, highlight=False)
            if advice := self._if_new(job_ref(job), advice_for(job, pod, reason)):
                self._live.console.print(f"hint: {advice}", markup=False, highlight=False)
            return
        self._bar.erase()
        super().pending_reason_of(job, pod, reason)

    def notice(self, job: JobRef, text: str) -> None:
        """Say it between table and bar."""
        self._freeze()
        self._bar.erase()
        super().notice(job, text)
        self._bar.draw()

    def log(self, job: JobRef, data: bytes) -> None:
        """Freeze the table, then write the log below it; the bar stays below the log."""
        self._freeze()
        self._bar.write(
            data, lambda piece: super(LiveView, self).log(job, piece), in_whole_lines=self._prefix
        )

    def record(self, job: JobRef, record: Obj) -> None:
        """Show how far a training is."""
        self._freeze()
        self._bar.update(record, name=job.name if self._prefix else "")

    def close(self) -> None:
        """Freeze the table, take the bar away and end the lines."""
        self._freeze()
        self._bar.erase()
        super().close()

    def _open(self) -> Live:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live(
                console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        return self._live

    def _freeze(self) -> None:
        if self._live is not None and not self._closed:
            self._live.update(self._table(), refresh=True)
            self._live.stop()
        self._closed = True

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
        rows = [(job, pod) for job, pods in self._pods.values() for pod in pods]
        has_gpus = any(pod_gpus(pod["spec"]) for _, pod in rows)
        for title in ("POD", "STATUS", "NODE", *(["GPUS"] if has_gpus else [])):
            table.add_column(title, no_wrap=True, overflow="ellipsis")
        for _, pod in rows[:ROWS_MAX]:
            status = read_pod_state(pod).status
            table.add_row(
                pod["metadata"]["name"],
                f"[{_COLOURS.get(status, 'yellow')}]{status}[/]",
                pod["spec"].get("nodeName", ""),
                *([gpu_cell(pod_gpus(pod["spec"]), self._gpu_kind)] if has_gpus else []),
            )
        if len(rows) > ROWS_MAX:
            counts = Counter(read_pod_state(pod).status for _, pod in rows[ROWS_MAX:])
            words = ", ".join(f"{count} {status}" for status, count in counts.most_common())
            table.add_row(f"… {len(rows) - ROWS_MAX} more", words, "")
        return table


_COLOURS = {
    "Running": "green",
    "Completed": "green",
    "Error": "red",
    "OOMKilled": "red",
    "Terminating": "dim",
}


def open_view(*, prefix_logs: bool, started_s: float, gpu_kind: str = "") -> PlainView:
    """Return the live view when standard output and standard error are a terminal, else plain lines."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        return LiveView(prefix_logs=prefix_logs, started_s=started_s, gpu_kind=gpu_kind)
    return PlainView(prefix_logs=prefix_logs, started_s=started_s, gpu_kind=gpu_kind)


def result_line(job: JobRef, status: str, exit_code: int | None, took_s: float, gpus: str = "") -> str:
    """Return the last line of a run: which job, how it ended, on which GPUs, how long it took."""
    code = "" if exit_code is None else f" (exit code {exit_code})"
    place = f" on {gpus}" if gpus else ""
    return f"{job} {status.lower()}{place} after {format_duration(took_s)}{code}"


def format_duration(seconds: float) -> str:
    """Return ``0.84 s``, ``12.3 s`` or an age such as ``3m20s``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < 120 else format_age(seconds)
