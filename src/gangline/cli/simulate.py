"""``gangline simulate``: replay a day of jobs on a simulated cluster, by our policy and simpler ones."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.options.suspension import suspension_bounds, suspension_options
from gangline.cli.output import Column, print_table, print_value, say
from gangline.errors import UserError
from gangline.placement import Policy
from gangline.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline.simulate.policies import ReplayPolicy
    from gangline.simulate.report import ReplayResult
    from gangline.simulate.site import Site
    from gangline.simulate.speeds import Speeds
    from gangline.simulate.trace import Trace

DEFAULTS = Policy()
TRACE_BYTES_MAX = 256 << 20
PROGRESS_EVERY_S = 0.2


@click.command("simulate")
@click.option("--load", default="80", show_default=True, metavar="PERCENT,...", help="How much work arrives.")
@click.option(
    "--policy",
    default="gangline,rack-only,best-fit,first-fit",
    show_default=True,
    metavar="NAME,...",
    help="Policies to compare, or all.",
)
@click.option("--hours", default=24.0, show_default=True, help="Span in which figures are taken.")
@click.option("--warm-up-hours", type=float, help="Replayed before it.  [default: 12, with --trace 0]")
@click.option(
    "--weight",
    type=click.Choice(["jobs", "gpus"]),
    default="jobs",
    show_default=True,
    help="Draw numbers of GPUs as often as jobs have them in the Philly trace, or times the GPUs.",
)
@click.option("--median-minutes", default=60.0, show_default=True, help="Median of the durations.")
@click.option("--sigma", default=1.5, show_default=True, help="Of the log-normal durations.")
@click.option("--nodes", default=250, show_default=True, help="Simulated nodes.")
@click.option("--machine", default="v100-dgx1", show_default=True, metavar="MODEL", help="What each node is.")
@click.option("--network-gbit-s", default=100.0, show_default=True, help="Network of each node.")
@click.option("--overlap", default=0.7, show_default=True, help="Of the backward pass, with the all-reduce.")
@click.option("--fixed-durations", is_flag=True, help="Jobs run as long on any GPUs.")
@click.option(
    "--overdue-after",
    type=click.IntRange(1),
    default=int(DEFAULTS.overdue_after_s),
    metavar="SECONDS",
    show_default=True,
    help="gangline and rack-only keep room for a job that has waited longer.",
)
@click.option(
    "--overdue-per-device",
    type=click.IntRange(0),
    default=int(DEFAULTS.overdue_per_device_s),
    metavar="SECONDS",
    show_default=True,
    help="The same for each GPU of the job, if that is longer.",
)
@click.option(
    "--whole-for",
    type=click.IntRange(0),
    default=int(DEFAULTS.whole_for_s),
    metavar="SECONDS",
    show_default=True,
    help="Under these a job waits so long for a node or rack that holds it whole.",
)
@suspension_options
@click.option(
    "--restart",
    type=click.IntRange(0),
    default=int(DEFAULTS.restart_s),
    metavar="SECONDS",
    show_default=True,
    help="A job that goes on holds its GPUs for so long before it does.",
)
@click.option(
    "--trace", "trace_file", default="", metavar="FILE", help="Replay the jobs of a CSV or JSON file."
)
@click.option("--save-trace", default="", metavar="FILE", help="Write the jobs as CSV.")
@click.option("--seed", default=0, show_default=True, help="Another one is another day.")
@click.option("--plot", multiple=True, metavar="FILE", help="Draw the figures: .png or .svg; repeatable.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print JSON or YAML.")
def command(
    policy: str, fixed_durations: bool, plot: tuple[str, ...], output: str | None, **options: Any
) -> None:
    """Replay a day of jobs on a simulated cluster, with Gangline's placement and simpler policies beside it.

    Nothing runs: nodes, GPUs and jobs are simulated, and how fast a placement trains is predicted.

    The columns are: mean time from arrival to end (JCT), mean and longest wait for the first start (WAIT,
    MAX), GPUs held, the same with each GPU weighted by the speed of its job (GOODPUT), the share of free GPUs
    that lie on partly taken nodes (FRAG), and the mean speed of gangs beside that of their best placement.

    \b
      gangline simulate --load 60,80,95 --plot day.png
      gangline simulate --load 95 --weight gpus --nodes 60 --policy all
      gangline simulate --trace jobs.csv --policy gangline,first-fit -o json
    """  # noqa: D301 - click's mark for text that is not filled
    from gangline.simulate.policies import POLICIES
    from gangline.simulate.site import Site
    from gangline.simulate.speeds import Speeds

    chosen = list(POLICIES) if policy == "all" else _words(policy, "--policy", tuple(POLICIES))
    for target in plot:
        _check_plot(target)
    if not 0 <= options["overlap"] <= 1:
        raise UserError(f"--overlap must be 0 to 1 (found {options['overlap']:g})")
    if not 0 < options["network_gbit_s"] < float("inf"):
        raise UserError(f"--network-gbit-s must be above 0 (found {options['network_gbit_s']:g})")
    site = Site(options["machine"], options["nodes"], options["network_gbit_s"])
    speeds = Speeds(site, options["overlap"])
    traces = _traces(site, options)
    if options["save_trace"]:
        _save(traces, options["save_trace"])
    bounds = Policy(
        overdue_after_s=options["overdue_after"],
        overdue_per_device_s=options["overdue_per_device"],
        whole_for_s=options["whole_for"],
        suspension=suspension_bounds(options),
        restart_s=float(options["restart"]),
    )
    outcomes = []
    for load, trace in traces.items():
        for name in chosen:
            scheduler = POLICIES[name](site, bounds)

            outcome = _run(load, trace, site, speeds, name, scheduler, fixed_durations, bounds.restart_s)
            outcomes.append(outcome)
    if output:
        print_value(_value(site, traces, outcomes, options | {"fixed_durations": fixed_durations}), output)
    else:
        _print(site, traces, outcomes)
    for target in plot:
        _draw(outcomes, target, f"simulated: {site.gpus:,} GPUs ({site.machine}), policies by load")


def _words(text: str, option: str, known: tuple[str, ...]) -> list[str]:
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for word in words:
        if word not in known:
            raise UserError(f"{option}: there is no `{word}`", hint=f"known are {', '.join(known)}")
    return words


def _draw(outcomes: list[ReplayResult], target: str, title: str) -> None:
    from gangline.simulate.plots import draw

    try:
        draw(outcomes, Path(target), title=title)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}") from error
    say(f"drawn: {target}")


def _check_plot(plot: str) -> None:
    from importlib.util import find_spec

    if Path(plot).suffix not in (".png", ".svg"):
        raise UserError(f"--plot must end in .png or .svg (found `{plot}`)")
    if not Path(plot).absolute().parent.is_dir():
        raise UserError(f"--plot: there is no folder `{Path(plot).absolute().parent}`")
    if find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib", hint="pip install 'gangline[plot]'")


def _traces(site: Site, options: dict[str, Any]) -> dict[float | None, Trace]:
    """Return a trace for each load; for a trace of a file there is no load."""
    from gangline.simulate.replay import check_trace
    from gangline.simulate.speeds import MODELS
    from gangline.simulate.trace import HOUR_S, Mix, generate
    from gangline.simulate.trace_text import read_trace

    warm_up_h = options["warm_up_hours"]
    if warm_up_h is not None and not 0 <= warm_up_h < float("inf"):
        raise UserError(f"--warm-up-hours must be at least 0 (found {warm_up_h:g})")
    found: dict[float | None, Trace] = {}
    if options["trace_file"]:
        text, warm_up_s = _read(options["trace_file"]), (warm_up_h or 0.0) * HOUR_S
        found[None] = read_trace(
            text, name=options["trace_file"], models=MODELS, warm_up_s=warm_up_s, seed=options["seed"]
        )
    else:
        if not 0 < options["hours"] < float("inf"):
            raise UserError(f"--hours must be above 0 (found {options['hours']:g})")
        loads = _loads(options["load"])
        if len(loads) > 1 and options["save_trace"]:
            raise UserError("--save-trace writes one trace", hint="give one --load")
        for load in loads:
            mix = Mix(
                load=load,
                gpus=site.gpus,
                weight=options["weight"],
                median_s=60 * options["median_minutes"],
                sigma=options["sigma"],
                models=MODELS,
                warm_up_s=(12.0 if warm_up_h is None else warm_up_h) * HOUR_S,
                day_s=options["hours"] * HOUR_S,
                seed=options["seed"],
            )
            found[load] = generate(mix)
    for trace in found.values():
        check_trace(trace, site)
    return found


def _loads(text: str) -> list[float]:
    try:
        loads = [float(word) / 100 for word in text.split(",") if word.strip()]
    except ValueError:
        loads = []
    if not loads:
        raise UserError(f"--load must be percentages with commas between them (found `{text}`)")
    return list(dict.fromkeys(loads))


def _read(name: str) -> str:
    try:
        if Path(name).stat().st_size > TRACE_BYTES_MAX:
            raise UserError(f"`{name}` has more than {TRACE_BYTES_MAX >> 20} MiB")
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the trace {name}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UserError(f"`{name}` is no text") from None


def _save(traces: dict[float | None, Trace], name: str) -> None:
    from gangline.simulate.trace_text import write_csv

    (trace,) = traces.values()
    try:
        Path(name).write_text(write_csv(trace), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {name}: {error.strerror}") from error
    say(f"{plural(len(trace.jobs), 'job')} written to {name}")


def _run(
    load: float | None,
    trace: Trace,
    site: Site,
    speeds: Speeds,
    policy: str,
    scheduler: ReplayPolicy,
    has_fixed_durations: bool,
    restart_s: float,
) -> ReplayResult:
    from gangline.simulate.figures import figures
    from gangline.simulate.replay import replay
    from gangline.simulate.report import ReplayResult

    title = f"{'trace' if load is None else f'{100 * load:g} %'} {policy}"
    watch, done = _progress(title, len(trace.jobs))
    started = time.perf_counter()
    try:
        outcome = replay(
            trace,
            site,
            scheduler,
            speeds,
            has_fixed_durations=has_fixed_durations,
            restart_s=restart_s,
            watch=watch,
        )
    finally:
        done()
    wall_s = time.perf_counter() - started
    return ReplayResult(load, policy, figures(outcome, trace, site), outcome.samples, wall_s)


def _progress(title: str, jobs: int) -> tuple[Callable[[int], None], Callable[[], None]]:
    """Return who is told how many jobs have ended, and what ends the display."""
    if not sys.stderr.isatty():
        return (lambda ended: None), (lambda: None)
    begun = shown = time.perf_counter()

    def watch(ended: int) -> None:
        nonlocal shown
        now = time.perf_counter()
        if now - shown >= PROGRESS_EVERY_S:
            shown = now
            text = f"simulating {title}: {ended:,} of {jobs:,} jobs, {now - begun:.0f} s"
            sys.stderr.write("\r\x1b[2K" + text[: shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()

    def done() -> None:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()

    return watch, done


def _value(
    site: Site, traces: dict[float | None, Trace], outcomes: list[ReplayResult], options: dict[str, Any]
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "simulated": True,
        "site": {**asdict(site), "gpus": site.gpus},
        "options": {name: value for name, value in sorted(options.items()) if name != "save_trace"},
        "traces": [
            {"load": load, "jobs": len(trace.jobs), "stretch": trace.stretch}
            for load, trace in traces.items()
        ],
        "results": [outcome.as_dict() for outcome in outcomes],
    }


def _print(site: Site, traces: dict[float | None, Trace], outcomes: list[ReplayResult]) -> None:
    from gangline.simulate.report import HEADINGS

    columns = [Column(title) for title in HEADINGS]
    print_table(columns, [outcome.cells() for outcome in outcomes])
    jobs = ", ".join(
        f"{sum(trace.is_measured(job) for job in trace.jobs):,}"
        + ("" if load is None else f" at {100 * load:g} %")
        for load, trace in traces.items()
    )
    nodes = f"{site.gpus:,} GPUs on {plural(site.nodes, 'node')} ({site.machine})"
    print(f"\nsimulated: {nodes}; jobs counted: {jobs}")
