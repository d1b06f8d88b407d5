"""``gangline runs``: what ran on this machine, and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.options.target import target_options
from gangline.cli.output import Column, print_table, print_value, say, terminal_width
from gangline.cli.runs.curves import compare, export, plot, show
from gangline.cli.subcommands import Subcommands
from gangline.client.target import ClusterTarget
from gangline.errors import UserError
from gangline.units import plural

if TYPE_CHECKING:
    from gangline.cluster.runs.history import RunFile

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
    from gangline.client.jobs.past_runs import read_runs

    reports = await read_runs(target, pattern, only_failed=only_failed, limit=limit, say=say)
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


def _row(report: dict[str, Any], *, wide: bool) -> list[str]:
    from gangline.client.run_report import metrics_in_words
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


for _command in (show, compare, plot, export):
    command.add_command(_command)
