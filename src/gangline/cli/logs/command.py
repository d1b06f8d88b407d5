"""``gangline logs``: the log of a job's primary pod, or of one instance."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.jobs.job_names import complete_job_name
from gangline.cli.logs.progress_bar import ProgressBar
from gangline.cli.options.durations import seconds_of
from gangline.cli.options.job_types import qualified, type_option
from gangline.cli.options.target import target_options
from gangline.client.target import ClusterTarget
from gangline.errors import ClusterError, UserError

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectReader


@click.command("logs")
@click.argument("name", shell_complete=complete_job_name)
@click.option("-f", "--follow", is_flag=True, help="Go on until the container ends.")
@click.option(
    "-t", "--tail", type=int, default=-1, metavar="LINES", help="Only the last lines.  [default: all]"
)
@click.option("--since", metavar="DURATION", help="Only what is younger: 30s, 5m, 2h.")
@click.option("--timestamps", is_flag=True, help="The time in front of each line.")
@click.option("-p", "--previous", is_flag=True, help="Of the container before its last restart.")
@click.option("-i", "--instance", metavar="POD", help="One pod of the job instead of its primary one.")
@click.option("-c", "--container", default="", metavar="NAME", help="One container of the pod.")
@click.option("--summary", is_flag=True, help="Instead of the log the figures of the benchmark in it.")
@click.option("--records", is_flag=True, help="Instead of the log what a training says to programs, as JSON.")
@type_option
@target_options()
def command(
    name: str,
    follow: bool,
    tail: int,
    since: str | None,
    timestamps: bool,
    previous: bool,
    instance: str | None,
    container: str,
    summary: bool,
    records: bool,
    kind: str,
    target: ClusterTarget,
) -> None:
    """Print the log of job NAME: its launcher's, from the first byte.

    NAME is that of an MPIJob, else of a Job, else of a Pod; `gangline get NAME` shows the instances for -i.
    """
    if tail < -1 or (tail == -1 and _is_given("tail")):
        raise UserError(f"-t must be 0 or more lines (found `{tail}`)")
    options: dict[str, Any] = {
        "container": container,
        "follow": follow,
        "tail_lines": tail if tail >= 0 else None,
        "since_s": seconds_of("--since", since) if since else None,
        "timestamps": timestamps,
        "previous": previous,
    }
    options_given = {"summary": summary, "records": records, "timestamps": timestamps}
    given = [name for name, is_given in options_given.items() if is_given]
    if len(given) > 1:
        raise UserError(f"--{given[0]} and --{given[1]} exclude each other")
    wanted = "summary" if summary else "records" if records else "text"
    name = qualified(name, kind)
    asyncio.run(_logs(target, name, instance, options, wanted=wanted))


def _is_given(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source == click.core.ParameterSource.COMMANDLINE


async def _logs(
    target: ClusterTarget, name: str, instance: str | None, options: dict[str, Any], *, wanted: str
) -> None:
    """Print what is `wanted` of a log: ``text``, ``records`` or ``summary``."""
    from gangline.client.jobs.job_lookup import open_job
    from gangline.client.jobs.log_reading import check_log, choose_pods

    async with open_job(target, name) as found:
        client, job, namespace = found.reader, found.job, found.namespace
        if found.past is not None:
            options["follow"] = False  # nothing comes any more
            check_log(found.past.record)
        pods = await choose_pods(client, job, instance, wait=options["follow"])
        output = _Output(wanted, has_bar=options["follow"] and sys.stdout.isatty() and sys.stderr.isatty())
        try:
            if wanted == "summary":
                pod_name = pods[0]["metadata"]["name"]
                async with aclosing(client.logs(pod_name, namespace, **options)) as pieces:
                    _print_summary(name, b"".join([piece async for piece in pieces]))
                return
            is_alone = len(pods) == 1
            copies = [
                asyncio.create_task(_copy(client, pod, options, output, wanted, is_alone=is_alone))
                for pod in pods
            ]
            try:
                await asyncio.gather(*copies)
            finally:
                for copy in copies:
                    copy.cancel()
        except ClusterError as error:
            error.hint = error.hint or f"`gangline get {name}` shows the state of its instances"
            raise
        finally:
            output.close()


async def _copy(
    client: ObjectReader,
    pod: dict[str, Any],
    options: dict[str, Any],
    output: _Output,
    wanted: str,
    *,
    is_alone: bool,
) -> None:
    """Write the log of one pod, beside others only whole lines of it."""
    from gangline.client.jobs.log_reading import read_log

    held = b""
    async with aclosing(read_log(client, pod, options, counts_lines=wanted == "text")) as pieces:
        async for shown, records in pieces:
            if not is_alone:
                whole, newline, held = (held + shown).rpartition(b"\n")
                shown = whole + newline
            output.add(shown, records)
    output.add(held, [])


class _Output:
    """Writes a log or its records to standard output, on a terminal with a bar below it."""

    def __init__(self, wanted: str, *, has_bar: bool) -> None:
        self._wanted = wanted
        self._bar = ProgressBar() if has_bar and wanted == "text" else None

    def add(self, shown: bytes, records: list[dict[str, Any]]) -> None:
        """Write what has come."""
        if self._wanted == "records":
            shown = "".join(f"{json.dumps(record)}\n" for record in records).encode()
        if self._bar is None:
            _write(shown)
            return
        self._bar.write(shown, _write)
        for record in records:
            self._bar.update(record)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.erase()


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _print_summary(name: str, log: bytes) -> None:
    """Print the figures in a log.

    Raises:
        UserError: there are none.
    """
    from gangline.bench.log_figures import read_figures, summary_lines

    figures = read_figures(log.decode(errors="replace").splitlines())
    if not figures.program:
        raise UserError(
            f"the log of `{name}` has no lines of a benchmark",
            hint="--summary knows tf_cnn_benchmarks, Horovod's synthetic benchmark and NVIDIA's main.py; "
            f"`gangline logs {name}` shows the log",
        )
    print("\n".join(summary_lines(figures)))
