"""``gangline runs``: what ran on this machine, and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from gangline.cli.options.target import target_options
from gangline.cli.output import Column, print_table, print_value, say, terminal_width
from gangline.cli.subcommands import Subcommands
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import ClusterError, UserError
from gangline.units import plural

if TYPE_CHECKING:
    from gangline.cluster.runs.history import History, RunFile
    from gangline.cluster.runs.record import RunRecord

LIMIT = 20
ID_CHARS = 8
COMMAND_CHARS_MAX = 60
"""Where the list goes to no terminal, whose width would say it."""

COLUMNS = (
    Column("NAME"),
    Column("ID", rank=7),
    Column("NAMESPACE", least=8, rank=8),
    Column("AGE", rank=4),
    Column("DURATION", rank=5),
    Column("RESULT"),
    Column("LAST", least=12, rank=6),
    Column("COMMAND", least=12, rank=3),
    Column("REASON", least=20, rank=1, wide=True),
)


class _Runs(Subcommands):
    """Takes a name behind the command for the option of that meaning: `gangline runs train`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the option in front of a first word that is no command."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["--name", *args]
        return super().parse_args(ctx, args)


@click.group("runs", cls=_Runs, invoke_without_command=True)
@click.option("--name", "pattern", metavar="NAME", help="Runs of that name; `train*` for all that begin so.")
@click.option("--failed", is_flag=True, help="Only runs that failed, were cancelled or lost.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=LIMIT, metavar="N", help="The newest ones.  [default: 20]"
)
@click.option(
    "-o", "--output", type=click.Choice(["wide", "json", "yaml", "name"]), help="Show more, or print values."
)
@target_options(namespace=False)
@click.pass_context
def command(
    context: click.Context,
    pattern: str | None,
    failed: bool,
    limit: int,
    output: str | None,
    target: ClusterTarget,
) -> None:
    """List what ran: command, duration, result, and what a training reported last.

    Runs stay when their jobs are deleted and the cluster is down, with their logs: `gangline logs NAME`,
    `get NAME` and `explain NAME` show the newest run of a name; in place of the name the ID of an older one
    works. They lie in the folders `runs` and `logs` of the cluster's files. Kept are 30 days, 1 GiB and 1000
    runs, the oldest go first; GANGLINE_RUNS_AGE=90d and GANGLINE_RUNS_SIZE=5Gi change that when the cluster
    starts next.

    With --context: the runs that `gangline run` began from this machine on that cluster, and what it showed
    of their logs while it followed them.
    """
    context.obj = target
    if context.invoked_subcommand is None:
        asyncio.run(_list(context.obj, pattern, only_failed=failed, limit=limit, output=output))


async def _list(
    target: ClusterTarget, pattern: str | None, *, only_failed: bool, limit: int, output: str | None
) -> None:
    from gangline.cluster.runs.history import DamagedRunError, History

    history = History(target.kept)
    is_up = target.is_up()
    if not target.is_local:
        await _look_again(target, history)
    reports: list[dict[str, Any]] = []
    for file in history.files():
        if len(reports) == limit:
            break
        if pattern and not fnmatchcase(file.name, pattern):
            continue
        try:
            record = history.read(file)
        except FileNotFoundError:  # removed by another command
            continue
        except DamagedRunError as error:
            say(f"left out: {error.message}; {error.hint}")
            continue
        report = await _report(target, record, is_up=is_up)
        if not only_failed or report["status"] in ("FAILED", "CANCELLED", "LOST"):
            reports.append(report)
    if output in ("json", "yaml"):
        print_value(reports, output)
    elif output == "name":
        print("".join(f"{report['name']}\n" for report in reports), end="")
    elif not reports:
        say("no such runs" if pattern or only_failed else "no runs yet: gangline run -n 2 -- python train.py")
    else:
        hidden = {"NAMESPACE"} if {report["namespace"] for report in reports} == {"default"} else set()
        shown = [index for index, column in enumerate(COLUMNS) if column.title not in hidden]
        wide = output == "wide"
        rows = [[row[index] for index in shown] for row in (_row(report, wide=wide) for report in reports)]
        print_table([COLUMNS[index] for index in shown], rows, wide=wide)


async def _look_again(target: ClusterTarget, history: History) -> None:
    """Bring the records up to date of runs that went on when nobody followed them any more."""
    from gangline.client.jobs.job_lookup import pods_of
    from gangline.clock import format_time, now
    from gangline.cluster.runs.history import DamagedRunError
    from gangline.cluster.runs.record import RunRecord, without_environment
    from gangline.kube.errors import NotFound
    from gangline.workloads.kinds import kind_of

    left = []
    for file in history.files():
        with suppress(FileNotFoundError, DamagedRunError):
            left += [record] if not (record := history.read(file)).is_over else []
    if not left:
        return
    try:
        async with open_client(target) as client:
            for record in left:
                metadata = record.job["metadata"]
                found: dict[str, Any] = {}
                with suppress(NotFound):
                    resource = kind_of(record.job).resource
                    found = await client.get(resource, metadata["name"], metadata["namespace"])
                    found.setdefault("kind", record.job["kind"])
                if found.get("metadata", {}).get("uid") == record.uid:
                    pods = [without_environment(pod) for pod in await pods_of(client, found)]
                    history.write(RunRecord(job=without_environment(found), pods=pods or record.pods))
                else:
                    history.write(replace(record, gone_at=format_time(now()), is_lost=True))
    except ClusterError as error:
        say(f"shown as last seen: {error.message}")


async def _report(target: ClusterTarget, record: RunRecord, *, is_up: bool) -> dict[str, Any]:
    from gangline.client.jobs.past_failure import why_failed
    from gangline.clock import now
    from gangline.cluster.runs.reading import PastRun
    from gangline.cluster.runs.record import summary_of
    from gangline.workloads.job_state import primary_pods

    run, past = summary_of(record, now(), is_up=is_up), PastRun(target.kept, record)
    primaries = primary_pods(record.job, record.pods)
    metrics = past.last_metrics(primaries[-1]) if primaries else {}
    cause = await why_failed(past, record.job, record.pods)
    return {
        "name": run.name,
        "id": run.id,
        "namespace": run.namespace,
        "kind": run.kind,
        "command": run.command,
        "status": run.status,
        "exitCode": run.exit_code,
        "failedRank": cause.rank if cause else None,
        "reason": str(cause or run.cancelled_why),
        "began": run.began,
        "ended": run.ended or None,
        "durationSeconds": run.duration_s,
        "metrics": {key: value for key, value in metrics.items() if key not in ("kind", "eta_s")},
    }


def _row(report: dict[str, Any], *, wide: bool) -> list[str]:
    from gangline.clock import now, parse_time
    from gangline.units import format_age

    age_s = (now() - parse_time(report["began"])).total_seconds() if report["began"] else 0.0
    command = report["command"] if wide else command_in_words(report["command"])
    command = " ".join(command.split())
    if terminal_width() is None and not wide and len(command) > COMMAND_CHARS_MAX:
        command = command[: COMMAND_CHARS_MAX - 1] + "…"
    return [
        report["name"],
        report["id"][:ID_CHARS],
        report["namespace"],
        format_age(age_s),
        format_age(report["durationSeconds"]),
        result_in_words(report),
        metrics_in_words(report["metrics"]),
        command,
        report["reason"],
    ]


def result_in_words(report: dict[str, Any]) -> str:
    """Return ``succeeded``, ``failed (3)`` with the exit code, ``failed (137): rank 1`` where it is known."""
    words = str(report["status"].lower())
    if report["status"] != "FAILED":
        return words
    code = f" ({report['exitCode']})" if report["exitCode"] else ""
    return words + code + (f": rank {report['failedRank']}" if report["failedRank"] is not None else "")


def command_in_words(command: str) -> str:
    """Return a command without the folder of its program: what differs between runs is behind it."""
    program, space, arguments = command.partition(" ")
    if program.startswith(("'", '"')):  # a folder with a space in its name
        return command
    return program.rpartition("/")[2] + space + arguments


def metrics_in_words(metrics: dict[str, Any]) -> str:
    """Return ``240/1000 loss 0.231 123 images/s``; empty where nothing was reported."""
    words = []
    if "step" in metrics:
        words.append(
            f"{metrics['step']}/{metrics['steps']}" if metrics.get("steps") else str(metrics["step"])
        )
    if isinstance(metrics.get("loss"), int | float):
        words.append(f"loss {metrics['loss']:.4g}")
    if isinstance(metrics.get("rate"), int | float):
        words.append(f"{metrics['rate']:,.4g} {metrics.get('unit') or 'items'}/s")
    return " ".join(words)


@command.command("delete")
@click.argument("names", nargs=-1, metavar="[NAME|ID]...")
@click.option("--older-than", metavar="AGE", help="Runs that ended so long ago: 12h, 7d, 4w.")
@click.option("--all", "everything", is_flag=True, help="All runs that are over.")
@click.pass_obj
def delete(target: ClusterTarget, names: tuple[str, ...], older_than: str | None, everything: bool) -> None:
    """Remove runs that are over, with their logs. NAME means all runs of that name, ID one of them."""
    from gangline.cluster.runs.bounds import parse_age
    from gangline.cluster.runs.history import History

    if not (names or older_than or everything):
        raise UserError("which runs?", hint="`gangline runs` lists them; --older-than 7d, or --all")
    if names and (older_than or everything):
        raise UserError("names and --older-than or --all exclude each other")
    history = History(target.kept)
    files = history.files()
    if names:
        chosen = [file for file in files if _is_named(file, names)]
        for name in names:
            if not any(_is_named(file, (name,)) for file in files):
                raise UserError(f"no run `{name}` is kept", hint="`gangline runs --limit 1000` lists all")
    else:
        before = time.time() - (parse_age(older_than, "--older-than") if older_than else 0.0)
        chosen = [file for file in files if file.written_at <= before]
    _delete(target, chosen, is_told=bool(names))


def _is_named(file: RunFile, names: tuple[str, ...]) -> bool:
    return file.name in names or any(len(name) >= ID_CHARS and file.uid.startswith(name) for name in names)


def _delete(target: ClusterTarget, files: list[RunFile], *, is_told: bool) -> None:
    """Remove what is over; jobs that are still there keep their logs until they go."""
    from gangline.cluster.runs.history import DamagedRunError, History

    history, is_up = History(target.kept), target.is_up()
    is_there = _jobs_there(target) if is_up and target.is_local else lambda uid: False
    removed, running = 0, []
    for file in files:
        try:
            goes_on = is_up and not history.read(file).is_over
        except DamagedRunError:
            goes_on = False
        except FileNotFoundError:
            continue
        if goes_on:
            running.append(file.name)
            continue
        history.delete(file, with_logs=not is_there(file.uid))
        removed += 1
    say(f"{plural(removed, 'run')} removed")
    if running and is_told:
        raise UserError(
            f"{plural(len(running), 'run')} still {'goes' if len(running) == 1 else 'go'} on: "
            f"{', '.join(running)}",
            hint=f"end it first: gangline delete {running[0]}{target.options}",
        )


def _jobs_there(target: ClusterTarget) -> Callable[[str], bool]:
    """Return a test for uids of jobs and pods that are still in the cluster."""
    from gangline.api.resources import JOBS, MPIJOBS, PODS, TRAINING_JOBS
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.kube.errors import NotFound

    cluster = Cluster(target.paths)
    uids: set[str] = set()
    for resource in (MPIJOBS, *TRAINING_JOBS, JOBS, PODS):
        with suppress(NotFound):
            found = cluster.request("GET", resource.path())
            uids |= {item["metadata"]["uid"] for item in found.get("items") or []}
    return uids.__contains__
