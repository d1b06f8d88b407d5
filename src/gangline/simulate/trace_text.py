"""Traces as text: CSV with a heading, or JSON with a list of objects; with other simulators' columns too.

==================  ====================================  ===========================================
column              also called                           meaning
==================  ====================================  ===========================================
``arrival_s``       ``submit_time``, ``timestamp``        seconds, or a date with a time
``work_s``          ``duration``, ``duration_s``          seconds on the best placement
``gpus``            ``num_gpus``, ``num_gpu``             GPUs of the whole job
``gpus_per_pod``                                          else 1 up to eight GPUs, beyond that 8, 4, 2 or 1
``model``           ``model_name``                        else drawn from the models, by the seed
``name``            ``job_id``                            else the number of the row
``limit_s``                                               time limit that the scheduler knows
==================  ====================================  ===========================================

Other columns are left out, and so are jobs without GPUs. The first arrival becomes second 0.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from gangline.clock import parse_time
from gangline.errors import UserError
from gangline.simulate.trace import Trace, TraceJob, gpus_per_pod

ALIASES = {
    "arrival_s": ("submit_time", "timestamp"),
    "work_s": ("duration", "duration_s"),
    "gpus": ("num_gpus", "num_gpu"),
    "model": ("model_name",),
    "name": ("job_id",),
}
REQUIRED = ("arrival_s", "work_s", "gpus")
JOBS_MAX = 2_000_000
COLUMNS = tuple(field.name for field in fields(TraceJob))


def write_csv(trace: Trace) -> str:
    """Return the jobs of a trace as CSV that :func:`read_trace` takes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for job in trace.jobs:
        values = [getattr(job, column) for column in COLUMNS]
        writer.writerow("" if value is None else value for value in values)
    return text.getvalue()


def read_trace(
    text: str, *, name: str, models: Sequence[str], warm_up_s: float = 0.0, seed: int = 0
) -> Trace:
    """Return the trace of a text.

    Args:
        text: CSV or JSON.
        name: of the file, for messages.
        models: from which models are drawn where the trace names none.
        warm_up_s: jobs that arrive before this are replayed and not counted.
        seed: of these draws.

    Raises:
        UserError: it cannot be read; the message names row and column.
    """
    draw = np.random.Generator(np.random.PCG64(seed)).random
    jobs = []
    for number, row in enumerate(_rows(text, name), 1):
        where = f"row {number} of {name}"
        if number > JOBS_MAX:
            raise UserError(f"{name} has more than {JOBS_MAX:,} jobs")
        job = _job(row, number, where, models[int(draw() * len(models))])
        if job is not None:
            jobs.append(job)
    if not jobs:
        raise UserError(f"{name} has no job with GPUs", hint=f"columns: {', '.join(COLUMNS)}")
    names = {job.name for job in jobs}
    if len(names) < len(jobs):
        raise UserError(f"{name} names a job twice; names must differ")
    first_s = min(job.arrival_s for job in jobs)
    moved = [_moved(job, first_s) for job in jobs]
    moved.sort(key=lambda job: (job.arrival_s, job.name))
    # The last arrival counts too; ends after it are awaited, but GPUs are watched no longer.
    until_s = moved[-1].arrival_s + 1.0
    if warm_up_s >= until_s:
        raise UserError(f"the warm-up of {warm_up_s:g} s leaves no job of {name} to be counted")
    return Trace(tuple(moved), warm_up_s, until_s)


def _moved(job: TraceJob, first_s: float) -> TraceJob:
    return replace(job, arrival_s=round(job.arrival_s - first_s, 3))


def _rows(text: str, name: str) -> Iterable[Mapping[str, Any]]:
    if text.lstrip()[:1] not in ("[", "{"):
        return csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UserError(f"{name} cannot be read as JSON: {error}") from None
    rows = value.get("jobs") if isinstance(value, dict) else value
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{name} must hold a list of jobs, or an object with `jobs`")
    return rows


def _job(row: Mapping[str, Any], number: int, where: str, model: str) -> TraceJob | None:
    found = {column: _cell(row, column) for column in COLUMNS}
    for column in REQUIRED:
        if found[column] is None:
            names = " or ".join(f"`{other}`" for other in (column, *ALIASES.get(column, ())))
            raise UserError(f"{where} has no {names}")
    gpus = _whole(found["gpus"], "gpus", where)
    if gpus == 0:
        return None
    each = (
        gpus_per_pod(gpus)
        if found["gpus_per_pod"] is None
        else _whole(found["gpus_per_pod"], "gpus_per_pod", where)
    )
    limit = found["limit_s"]
    return TraceJob(
        name=str(found["name"] if found["name"] is not None else f"job-{number:07}"),
        arrival_s=_seconds(found["arrival_s"], "arrival_s", where),
        gpus=gpus,
        gpus_per_pod=each,
        model=str(found["model"] or model),
        work_s=max(_seconds(found["work_s"], "work_s", where), 1.0),
        limit_s=None if limit is None else max(_seconds(limit, "limit_s", where), 1.0),
    )


def _cell(row: Mapping[str, Any], column: str) -> Any:
    for name in (column, *ALIASES.get(column, ())):
        value = row.get(name)
        if value is not None and value != "":
            return value
    return None


def _whole(value: Any, column: str, where: str) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if number < 0 or number != int(number):
        raise UserError(f"{where}: {column} must be a whole number of at least 0 (found `{value}`)")
    return int(number)


def _seconds(value: Any, column: str, where: str) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = _date(value)
    if not 0 <= seconds < float("inf"):
        raise UserError(f"{where}: {column} must be seconds of at least 0 (found `{value}`)")
    return seconds


def _date(value: Any) -> float:
    try:
        return parse_time(str(value)).timestamp()
    except ValueError:
        return -1.0
