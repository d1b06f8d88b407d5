"""One run as it is kept: the job and its pods as they were last seen, without what was in their environment.

Nothing is judged here that the objects say themselves: what a run came to is read from them, as for a job
that is there.
"""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from gangline.clock import parse_time
from gangline.workloads.job_state import condition, ended_at, exit_code_of, finished, primary_pods
from gangline.workloads.job_view import JobView
from gangline.workloads.kinds import kind_of

Obj = dict[str, Any]

PROGRAM_ANNOTATION = "gangline.dev/program"
"""On a job that ``gangline run`` wrote for a program: the program's words as a shell would read them."""

PROGRAM_CHARS_MAX = 4096
UNFINISHED = ("RUNNING", "PENDING", "SUSPENDED")

_DROPPED_METADATA = ("managedFields", "resourceVersion", "generation")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ENVIRONMENT = ("env", "envFrom")
_SETTING = ("-x", "--x", "-env", "--env", "-e")
"""Options of launchers that are followed by NAME=VALUE."""
_SETTING_OF_TWO = ("-genv", "-env")
"""Options of Hydra's mpirun that are followed by NAME and VALUE."""

# mpirun -np 2 -x HF_TOKEN=abc python train.py
_SETTING_IN_LINE = re.compile(r"(?<!\S)(--?(?:x|env|e)\s+[A-Za-z_]\w*)=\S+")


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A run on disk.

    Attributes:
        job: in wire form, as last seen.
        pods: of it, those that are gone included.
        gone_at: when the job was found gone, RFC 3339; empty while it is there.
        is_lost: it went while nobody watched, so that nobody knows how.
        gpu_source: what the nodes said of their GPUs (``simulated``, ...); empty where none was asked for.
    """

    job: Obj
    pods: list[Obj] = []
    gone_at: str = ""
    is_lost: bool = False
    gpu_source: str = ""

    @property
    def uid(self) -> str:
        """The job's own, which is the run's."""
        return str(self.job["metadata"]["uid"])

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return bool(self.gone_at or finished(self.job))


class RunSummary(NamedTuple):
    """What a list shows of a run.

    Attributes:
        status: ``RUNNING``, ``PENDING``, ``SUCCEEDED``, ``FAILED``, ``CANCELLED`` or ``LOST``.
        began: RFC 3339.
        ended: RFC 3339; empty while it goes on.
        exit_code: of the last chief pod; None where none ended.
    """

    id: str
    name: str
    namespace: str
    kind: str
    command: str
    status: str
    began: str
    ended: str
    duration_s: float
    exit_code: int | None

    @property
    def cancelled_why(self) -> str:
        """Why a run has no result; empty for one that has, or that goes on."""
        return _WITHOUT_RESULT.get(self.status, "")


_WITHOUT_RESULT = {
    "CANCELLED": "it was deleted before it ended",
    "LOST": "its job or cluster went while nobody followed it, so nobody saw its end",
}


def summary_of(record: RunRecord, now: datetime, *, is_up: bool = True) -> RunSummary:
    """Return what a list shows; ``is_up`` says whether a cluster runs that could still carry the run on."""
    job, metadata = record.job, record.job["metadata"]
    began = metadata.get("creationTimestamp") or ""
    ended = _end_of(record)
    chiefs = primary_pods(job, record.pods)
    end = parse_time(ended) if ended else now
    return RunSummary(
        id=record.uid,
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        kind=job["kind"],
        command=command_of(job),
        status=_status(record, is_up=is_up),
        began=began,
        ended=ended,
        duration_s=max(0.0, (end - parse_time(began)).total_seconds()) if began else 0.0,
        exit_code=exit_code_of(chiefs[-1]) if chiefs else None,
    )


def view_of_run(view: JobView, record: RunRecord, now: datetime) -> JobView:
    """Return the view of a job that is gone, or whose cluster is not up, as that of its run."""
    run = summary_of(record, now, is_up=False)
    return replace(
        view,
        status=run.status,
        duration_s=run.duration_s,
        ended=run.ended,
        reason=run.cancelled_why or view.reason,
        gpus_allocated=None,
    )


def _status(record: RunRecord, *, is_up: bool) -> str:
    over = finished(record.job)
    if over == "FAILED" and _deleted_before_end(record):
        return "CANCELLED"
    if over:
        return over
    if record.gone_at:
        return "LOST" if record.is_lost else "CANCELLED"
    has_begun = condition(record.job, "Running") or any(
        (pod.get("status") or {}).get("phase") == "Running" for pod in record.pods
    )
    if has_begun:
        return "RUNNING" if is_up else "LOST"
    return "PENDING"


def _deleted_before_end(record: RunRecord) -> bool:
    """Return whether the deletion was asked for first; a pod's time of it lies its grace period later."""
    metadata, ended = record.job["metadata"], _end_of(record)
    if not (ended and metadata.get("deletionTimestamp")):
        return False
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return parse_time(metadata["deletionTimestamp"]) - grace <= parse_time(ended)


def _end_of(record: RunRecord) -> str:
    return ended_at(record.job) or record.gone_at


def command_of(job: Obj) -> str:
    """Return the command of a job in one line: the program of `gangline run`, else its first container's."""
    if program := (job["metadata"].get("annotations") or {}).get(PROGRAM_ANNOTATION):
        return str(program)
    spec = kind_of(job).primary_template(job).get("spec") or {}
    container = (spec.get("containers") or [{}])[0]
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    if words:  # a function of an SDK's caller is a script of many lines
        return " ".join(shlex.join(str(word) for word in words).split())[:PROGRAM_CHARS_MAX]
    runtime = ((job.get("spec") or {}).get("runtimeRef") or {}).get("name")
    image = container.get("image")
    return f"(of runtime {runtime})" if runtime and not image else f"(of image {image or 'unknown'})"


def program_text(words: list[str] | tuple[str, ...]) -> str:
    """Return the words of a program in one line, of at most 4096 characters."""
    return shlex.join(words)[:PROGRAM_CHARS_MAX]


def without_environment(obj: Obj) -> Obj:
    """Return a copy of an object as it may be kept: no variable's value, no copy of what was applied.

    Left out are ``env`` and ``envFrom`` wherever they are, values in ``-x NAME=VALUE`` of launchers' lines,
    and what the server alone needs. Other words of a command stay: anyone on the machine sees them in ``ps``.
    """
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _DROPPED_METADATA}
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {key: text for key, text in annotations.items() if key != _LAST_APPLIED}
    return {key: metadata if key == "metadata" else _strip(value) for key, value in obj.items()}


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _strip_words(inner)
            if key in ("command", "args") and isinstance(inner, list)
            else _strip(inner)
            for key, inner in value.items()
            if key not in _ENVIRONMENT
        }
    return [_strip(inner) for inner in value] if isinstance(value, list) else value


def _strip_words(words: list[Any]) -> list[Any]:
    """Return a command line without the values of the variables that a launcher is to set."""
    kept: list[Any] = []
    for index, word in enumerate(words):
        if not isinstance(word, str):
            continue
        before = words[index - 1] if index else ""
        if index >= 2 and words[index - 2] in _SETTING_OF_TWO and "=" not in str(before):
            continue  # the VALUE behind NAME
        if before in _SETTING and "=" in word:
            word = word.partition("=")[0]
        kept.append(_SETTING_IN_LINE.sub(r"\1", word))
    return kept
