"""``gangline runs show|compare|plot|export``: the scalars that trainings recorded."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gangline.cli.output import Column, print_table, print_value, say, terminal_width
from gangline.client.target import ClusterTarget
from gangline.errors import UserError
from gangline.units import plural

if TYPE_CHECKING:
    from gangline.cluster.runs.curves import Curves, ScalarPoint
    from gangline.cluster.runs.record import RunSummary

RUNS_MAX = 100
PLOT_WIDTH = 80
FORMATS = ("csv", "json", "tensorboard")
_names = click.argument("names", nargs=-1, required=True, metavar="NAME|ID...")
_output = click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), default=None, help="Print JSON or YAML."
)
_metric = click.option("--metric", metavar="NAME", help="The scalar.  [default: loss]", default="loss")


class RunCurves(NamedTuple):
    """A run and the scalars that it recorded."""

    run: RunSummary
    curves: Curves


def read_runs(target: ClusterTarget, names: tuple[str, ...]) -> list[RunCurves]:
    """Return the runs of these names, patterns or ids with their curves, in the order of the names.

    Raises:
        UserError: a name has no run, or there are too many.
    """
    from gangline.clock import now
    from gangline.cluster.runs.history import History
    from gangline.cluster.runs.reading import find_past
    from gangline.cluster.runs.record import summary_of

    files, is_up = History(target.kept).files(), target.is_up()
    found: dict[str, RunCurves] = {}
    for name in names:
        alike = [file.uid for file in reversed(files) if fnmatchcase(file.name, name)]
        wanted = alike if any(sign in name for sign in "*?[") else [name]
        for one in wanted:
            past = find_past(target.kept, one, None)
            if past is not None and past.record.uid not in found:
                found[past.record.uid] = RunCurves(summary_of(past.record, now(), is_up=is_up), past.curves())
            if past is None:
                raise UserError(f"no run `{one}` is kept", hint="`gangline runs` lists them")
        if not wanted:
            raise UserError(f"no run is called `{name}`", hint="`gangline runs` lists them")
        if len(found) > RUNS_MAX:
            raise UserError(f"`{name}` means more than {RUNS_MAX} runs", hint="name fewer")
    return list(found.values())


@click.command("show")
@click.argument("name", metavar="NAME|ID")
@_output
@click.pass_obj
def show(target: ClusterTarget, name: str, output: str | None) -> None:
    """Show a run: its command, result, and the last, lowest and highest value of each scalar."""
    from gangline.cluster.runs.curves import best_of

    [(run, curves)] = read_runs(target, (name,))[:1]
    rows = []
    for scalar, curve in sorted(curves.items()):
        low, high = best_of(curve), best_of(curve, is_max=True)
        rows.append((scalar, len(curve), curve[-1], low, high))
    if output:
        print_value(
            {
                **{
                    key: getattr(run, key)
                    for key in ("name", "id", "namespace", "command", "status", "began")
                },
                "durationSeconds": run.duration_s,
                "scalars": {
                    scalar: {
                        "points": count,
                        "last": _value(last),
                        "lowest": _value(low),
                        "highest": _value(high),
                    }
                    for scalar, count, last, low, high in rows
                },
            },
            output,
        )
        return
    print(f"{run.name} {run.status.lower()} after {run.duration_s:.0f} s: {run.command}\n")
    if not rows:
        print("it recorded no scalars: progress.log(step, loss=...) of gangline.train does")
        return
    heads = ("SCALAR", "POINTS", "LAST", "LOWEST", "HIGHEST")
    print_table(
        [Column(head) for head in heads],
        [[scalar, str(count), *map(_text, (last, low, high))] for scalar, count, last, low, high in rows],
    )


def _value(point: ScalarPoint | None) -> dict[str, float | None] | None:
    from math import isfinite

    if point is None:
        return None
    return {"step": point.step, "value": point.value if isfinite(point.value) else None}


def _text(point: ScalarPoint | None) -> str:
    return "-" if point is None else f"{point.value:.5g} at {point.step}"


@click.command("compare")
@_names
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="A scalar.  [default: all, at most 6]"
)
@click.option("--best", metavar="NAME", help="Order by the lowest value of this one, the best first.")
@click.option("--max", "is_max", is_flag=True, help="With --best: the highest value is the best.")
@_output
@click.pass_obj
def compare(
    target: ClusterTarget,
    names: tuple[str, ...],
    metrics: tuple[str, ...],
    best: str | None,
    is_max: bool,
    output: str | None,
) -> None:
    """Compare runs: the last value of each scalar, and with --best the best value of one."""
    from gangline.cluster.runs.curves import best_of

    runs = read_runs(target, names)
    known = sorted({scalar for _, curves in runs for scalar in curves})
    for name in (*metrics, *([best] if best else [])):
        _check_known(name, known)
    shown = list(metrics) or known[:6]
    tops = {run.id: best_of(curves.get(best, []), is_max=is_max) for run, curves in runs} if best else {}
    if best:
        sign = -1 if is_max else 1
        runs.sort(key=lambda one: sign * top.value if (top := tops[one.run.id]) else float("inf"))
    if output:
        print_value(
            [
                {
                    "name": run.name,
                    "id": run.id,
                    "status": run.status,
                    "command": run.command,
                    "last": {scalar: _value(curves[scalar][-1]) for scalar in shown if scalar in curves},
                    **({"best": _value(tops[run.id])} if best else {}),
                }
                for run, curves in runs
            ],
            output,
        )
        return
    heads = [
        "NAME",
        "RESULT",
        *(scalar.upper() for scalar in shown),
        *([f"BEST {best.upper()}"] if best else []),
    ]
    rows = []
    for run, curves in runs:
        last = [f"{curves[scalar][-1].value:.5g}" if scalar in curves else "-" for scalar in shown]
        rows.append([run.name, run.status.lower(), *last, *([_text(tops[run.id])] if best else [])])
    columns = [Column(head, rank=max(0, number - 1)) for number, head in enumerate(heads)]
    print_table(columns, rows)


@click.command("plot")
@_names
@_metric
@click.option("--log", "is_log", is_flag=True, help="A logarithmic axis for the values.")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="Write a picture instead: .svg, .png or .pdf, by matplotlib.",
)
@click.pass_obj
def plot(target: ClusterTarget, names: tuple[str, ...], metric: str, is_log: bool, file: Path | None) -> None:
    """Plot a scalar of runs over their steps, in the terminal or into a picture."""
    from gangline.cli.runs.terminal_plot import plot_lines

    runs = read_runs(target, names)
    _check_known(metric, sorted({scalar for _, curves in runs for scalar in curves}))
    chosen = {run.name: curves[metric] for run, curves in runs if metric in curves}
    if missing := [run.name for run, curves in runs if metric not in curves]:
        say(f"without `{metric}`: {', '.join(missing)}")
    if file is not None:
        _picture(chosen, metric, file, is_log=is_log)
        return
    print(f"{metric}{' (log)' if is_log else ''} by step")
    points = {name: [(float(point.step), point.value) for point in curve] for name, curve in chosen.items()}
    for line in plot_lines(points, width=min(terminal_width() or PLOT_WIDTH, 160), is_log=is_log):
        print(line)


def _check_known(metric: str, known: list[str]) -> None:
    if metric not in known:
        hint = f"there are {', '.join(known)}" if known else "progress.log(step, loss=...) records them"
        raise UserError(f"no run recorded the scalar `{metric}`", hint=hint)


def _picture(chosen: dict[str, list[ScalarPoint]], metric: str, file: Path, *, is_log: bool) -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UserError(
            "a picture needs matplotlib", hint="pip install 'gangline[plot]', or leave --file out"
        )
    from gangline.bench.plots import draw_curves

    lines = {name: [(point.step, point.value) for point in curve] for name, curve in chosen.items()}
    try:
        draw_curves(lines, file, label=metric, is_log=is_log)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write {file}: {error}") from error
    say(f"drawn: {file}")


@click.command("export")
@_names
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    help="File, or folder for tensorboard.  [default: standard output, `runs` for tensorboard]",
)
@click.pass_obj
def export(target: ClusterTarget, names: tuple[str, ...], form: str, to: Path | None) -> None:
    """Write the scalars of runs as CSV, as JSON, or as event files that `tensorboard --logdir` reads."""
    from gangline.cluster.runs.exports import as_csv, as_json, event_file

    runs = {(run.name, run.id): curves for run, curves in read_runs(target, names)}
    counts = [name for name, _ in runs]
    titled = {
        name if counts.count(name) == 1 else f"{name}-{uid[:8]}": curves
        for (name, uid), curves in runs.items()
    }
    try:
        if form == "tensorboard":
            for name, curves in titled.items():
                folder = (to or Path("runs")) / name
                folder.mkdir(parents=True, exist_ok=True)
                begun = min((point.at_s for curve in curves.values() for point in curve), default=0.0)
                (folder / f"events.out.tfevents.{begun:.0f}.gangline").write_bytes(event_file(curves))
            say(f"{plural(len(titled), 'run')} in {to or 'runs'}: tensorboard --logdir {to or 'runs'}")
            return
        text = as_csv(titled) if form == "csv" else as_json(titled)
        if to is None:
            print(text, end="")
        else:
            to.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {to or 'runs'}: {error.strerror}") from error
