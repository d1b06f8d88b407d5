"""``gangline run --sweep``: one run for each combination of values, a queue, and a table of results."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import click
import msgspec

from gangline.cli.output import Column, print_table, say
from gangline.client.run.sweep import Sweep, SweepPoint, filled, new_sweep, own_words, resumed
from gangline.client.target import ClusterTarget
from gangline.errors import EXIT_INTERRUPTED, GanglineError, UserError
from gangline.units import plural

if TYPE_CHECKING:
    from gangline.cli.runs.curves import RunCurves
    from gangline.client.async_job import AsyncJobHandle

F = TypeVar("F", bound=Callable[..., object])

FOLDER = "sweeps"
PARALLEL_MAX = 64
SHOWN_MAX = 4
TAIL_LINES = 4
OPTIONS = {
    "--sweep": True,
    "--parallel": True,
    "--resume": False,
    "--best": True,
    "--max": False,
    "--name": True,
    "--dry-run": False,
}
"""What is of the sweep and not of its runs; and whether a value follows."""


class SweepOptions(NamedTuple):
    """What was typed of a sweep.

    Attributes:
        texts: of ``--sweep``.
        parallel: runs at the same time.
        resume: run again what has not succeeded.
        best: scalar by which the best run is told; empty for none.
        is_max: its highest value is the best.
    """

    texts: tuple[str, ...]
    parallel: int
    resume: bool
    best: str
    is_max: bool

    def is_asked(self, *, is_program: bool) -> bool:
        """Return whether there is a sweep.

        Raises:
            UserError: it has no program, or an option of a sweep is there without one.
        """
        if self.texts and not is_program:
            raise UserError("--sweep is for programs behind `--`", hint="gangline run --sweep ... -- PROGRAM")
        alone = {"--parallel": self.parallel > 1, "--resume": self.resume, "--best": bool(self.best)}
        for option, is_given in {**alone, "--max": self.is_max}.items():
            if is_given and not self.texts:
                raise UserError(f"{option} belongs to a sweep", hint="--sweep lr=1e-3,1e-2")
        return bool(self.texts)


def sweep_options(function: F) -> F:
    """Add --sweep, --parallel, --resume, --best and --max, passed on as one ``sweep``."""

    @wraps(function)
    def wrapped(
        *args: object,
        sweeps: tuple[str, ...],
        parallel: int,
        resume: bool,
        best: str,
        is_max: bool,
        **rest: object,
    ) -> object:
        return function(*args, sweep=SweepOptions(sweeps, parallel, resume, best, is_max), **rest)

    options = (
        click.option(
            "--sweep",
            "sweeps",
            multiple=True,
            metavar="NAME=VALUE,...",
            help="One run of PROGRAM for each value, in the place of {NAME}; A..B means whole numbers.",
        ),
        click.option(
            "--parallel",
            type=click.IntRange(1, PARALLEL_MAX),
            default=1,
            metavar="N",
            help="Runs of a sweep at the same time.  [default: 1]",
        ),
        click.option("--resume", is_flag=True, help="Run again what of a sweep has not succeeded."),
        click.option("--best", default="", metavar="SCALAR", help="Order the table of a sweep by this one."),
        click.option("--max", "is_max", is_flag=True, help="With --best: the highest value is the best."),
    )
    for option in reversed(options):
        wrapped = option(wrapped)
    return cast(F, wrapped)


def run_sweep(
    target: ClusterTarget,
    program: tuple[str, ...],
    words: list[str],
    options: SweepOptions,
    name: str | None,
    dry_run: bool,
) -> int:
    """Run a sweep to its end and print its table; return 0 when every run has succeeded.

    Args:
        target: the cluster.
        program: with places for values.
        words: options of the line, which the runs get too.
        options: of the sweep.
        name: as typed.
        dry_run: print the lines alone.
    """
    from gangline.client.run.program_job import check_name, name_of_program

    check_name(name)
    sweep = new_sweep(name or name_of_program(program), program, options.texts)
    line = own_words(words, OPTIONS)
    if dry_run:
        for point in sweep.points:
            print(shlex.join(["gangline", "run", *line, "--", *filled(program, point.values)]))
        return 0
    kept = _Kept(target.kept.state / FOLDER / f"{sweep.name}.json")
    if options.resume:
        sweep = resumed(kept.read(sweep.name), sweep)
    queue = _Queue(target, sweep, line, kept)
    is_whole = False
    try:
        is_whole = asyncio.run(queue.run(options.parallel))
    finally:
        kept.write(queue.sweep)
        if not is_whole:
            say(f"what has not succeeded is run again by the same line with --resume ({kept.path})")
    _print_table(target, queue.sweep, options)
    return 0 if is_whole else 1


class _Kept:
    """The file of a sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> Sweep:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Sweep)
        except FileNotFoundError:
            raise UserError(f"no sweep `{name}` was begun", hint="leave --resume out") from None
        except (OSError, msgspec.MsgspecError) as error:
            raise UserError(f"cannot read sweep `{name}`: {self.path}: {error}") from None

    def write(self, sweep: Sweep) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_suffix(f".{os.getpid()}.draft")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(sweep)))
        draft.replace(self.path)


class _Queue:
    """The runs of a sweep, so many at a time; each is a ``gangline run`` of its own."""

    def __init__(self, target: ClusterTarget, sweep: Sweep, line: list[str], kept: _Kept) -> None:
        self.sweep = sweep
        self._target, self._line, self._kept = target, line, kept
        self._names = _names(target, sweep)
        self._going: dict[int, AsyncJobHandle] = {}
        self._done = 0

    async def run(self, parallel: int) -> bool:
        """Run what has not succeeded yet; return whether everything has then."""
        await self._look_back()
        left = [index for index, point in enumerate(self.sweep.points) if point.exit_code != 0]
        self._done = len(self.sweep.points) - len(left)
        if self._done:
            say(f"{self._done} of {plural(len(self.sweep.points), 'run')} have succeeded before")
        places = asyncio.Semaphore(parallel)

        async def one(index: int) -> None:
            async with places:
                await self._run(index)

        async with asyncio.TaskGroup() as group:
            for index in left:
                group.create_task(one(index))
        return all(point.exit_code == 0 for point in self.sweep.points)

    async def _look_back(self) -> None:
        """Find the runs again whose commands are gone: they have succeeded meanwhile, or go on."""
        from gangline.client.async_job import AsyncJobHandle
        from gangline.client.jobs.job_lookup import open_job
        from gangline.client.jobs.one_job import read_job
        from gangline.workloads.job_start import job_ref
        from gangline.workloads.job_state import finished

        for index, point in enumerate(self.sweep.points):
            if not point.run or point.exit_code is not None:
                continue
            with suppress(GanglineError):  # it never came to a job, or nothing is left of it
                async with open_job(self._target, point.run) as found:
                    view = await read_job(found)
                    if view.status == "SUCCEEDED":
                        self._keep(index, msgspec.structs.replace(point, exit_code=0))
                    elif found.client is not None and not finished(found.job):
                        self._going[index] = AsyncJobHandle(self._target, job_ref(found.job))

    async def _follow(self, index: int, job: AsyncJobHandle) -> bool:
        """Wait for a run that went on without its command; return whether it has succeeded."""
        point = self.sweep.points[index]
        say(f"{point.run}  {point.words}  goes on since it was begun before")
        try:
            if (await job.wait()).status != "SUCCEEDED":
                return False
        except asyncio.CancelledError:  # Ctrl-C, which deletes the others' jobs too
            await job.cancel()
            raise
        self._keep(index, msgspec.structs.replace(point, exit_code=0))
        self._done += 1
        say(f"[{self._done}/{len(self.sweep.points)}] {point.run}  {point.words}  succeeded")
        return True

    def _keep(self, index: int, point: SweepPoint) -> None:
        self.sweep = self.sweep.with_point(index, point)
        self._kept.write(self.sweep)

    async def _run(self, index: int) -> None:
        if index in self._going and await self._follow(index, self._going[index]):
            return
        point = msgspec.structs.replace(self.sweep.points[index], run=next(self._names), exit_code=None)
        self._keep(index, point)
        program = filled(self.sweep.program, point.values)
        words = [sys.executable, "-m", "gangline", "run", *self._line, "--name", point.run, "--", *program]
        began_s = time.monotonic()
        with tempfile.TemporaryFile() as said:
            child = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=said
            )
            try:
                code = await child.wait()
            except asyncio.CancelledError:  # Ctrl-C reaches it too: it deletes its job
                await child.wait()
                raise
            said.seek(0)
            told = said.read().decode(errors="replace").splitlines()
        if code == EXIT_INTERRUPTED:
            return
        self._keep(index, msgspec.structs.replace(point, exit_code=code))
        self._done += 1
        took_s = time.monotonic() - began_s
        how = "succeeded" if code == 0 else f"failed ({code})"
        say(f"[{self._done}/{len(self.sweep.points)}] {point.run}  {point.words}  {how} after {took_s:.1f} s")
        for text in told[-TAIL_LINES:] if code else ():
            say(f"    {text}")


def _names(target: ClusterTarget, sweep: Sweep) -> Iterator[str]:
    """Yield names that no run has, one after the other."""
    from gangline.cluster.runs.history import History
    from gangline.cluster.runs.names import names_after

    taken = {file.name for file in History(target.kept).files()} | {point.run for point in sweep.points}
    return names_after(sweep.name, taken)


def _print_table(target: ClusterTarget, sweep: Sweep, options: SweepOptions) -> None:
    from gangline.cli.runs.curves import read_runs
    from gangline.cluster.runs.curves import best_of

    found: dict[str, RunCurves] = {}
    for point in sweep.points:
        if point.run:
            try:
                found[point.run] = read_runs(target, (point.run,))[0]
            except UserError:  # it never came to a job
                continue
    known = sorted({scalar for one in found.values() for scalar in one.curves})
    tops = {
        run: best_of(one.curves.get(options.best, []), is_max=options.is_max) for run, one in found.items()
    }
    sign = -1 if options.is_max else 1
    points = list(sweep.points)
    if options.best:  # what failed is not the best, whatever it reached
        points.sort(
            key=lambda point: (
                point.exit_code != 0,
                sign * top.value if (top := tops.get(point.run)) else float("inf"),
            )
        )
    shown = [options.best] if options.best else known[:SHOWN_MAX]
    heads = ["RUN", *(axis.name.upper() for axis in sweep.axes), "RESULT", *(name.upper() for name in shown)]
    rows = []
    for point in points:
        curves = found[point.run].curves if point.run in found else {}
        last = [f"{curves[name][-1].value:.5g}" if name in curves else "-" for name in shown]
        if options.best:
            top = tops.get(point.run)
            last = [f"{top.value:.5g} at {top.step}" if top else "-"]
        rows.append([point.run or "-", *point.values.values(), _result(point), *last])
    print_table([Column(head) for head in heads], rows)
    if options.best and points[0].exit_code == 0 and (top := tops.get(points[0].run)):
        print(
            f"\nbest: {points[0].run} ({points[0].words}), {options.best} {top.value:.5g} at step {top.step}"
        )
    elif options.best:
        say(
            f"no run that succeeded recorded `{options.best}`"
            + (f"; there are {', '.join(known)}" if known else "")
        )


def _result(point: SweepPoint) -> str:
    if point.exit_code is None:
        return "not ended" if point.run else "not begun"
    return "succeeded" if point.exit_code == 0 else f"failed ({point.exit_code})"
