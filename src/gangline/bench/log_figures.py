"""Read the figures out of a benchmark's log: tf_cnn_benchmarks, NetApp's variant, Horovod's, NVIDIA's. Pure.

Ranks of tf_cnn_benchmarks all print everything, near-equal totals included, each of them already for all
ranks: the figures are those of one rank, and never a sum. Where a launcher tagged the lines
(``[1,0]<stdout>:``) it is the lowest rank; else the first one of each line that came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gangline.bench.limits import PREFIX as LIMITED

_TAG = re.compile(r"^(?:\S+ )?\[(?:\d+,)?(\d+)\]<std(?:out|err|diag)>: ?")
_NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf))"
_HEADER = re.compile(r"^(TensorFlow|Model|Dataset|Mode|Num batches|Batch size|Devices|Optimizer):\s+(.*)$")
_STEP = re.compile(
    rf"^(\d+)\s+images/sec: {_NUMBER} \+/- {_NUMBER} \(jitter = {_NUMBER}\)\s+{_NUMBER}(?:\s|$)"
)
_TOTAL = re.compile(rf"^total images/sec: {_NUMBER}$")
_NETAPP_TOTAL = re.compile(rf"^Total images/sec = {_NUMBER}$")
_HOROVOD_RATE = re.compile(rf"^Img/sec per (GPU|CPU): {_NUMBER} \+-{_NUMBER}$")
_HOROVOD_TOTAL = re.compile(rf"^Total img/sec on (\d+) (?:GPU|CPU)\(s\): {_NUMBER} \+-{_NUMBER}$")
_DLLOGGER = re.compile(r"^DLL \S+ \S+ - (\(.*?\)|\w+) (.*)$")
_DLLOGGER_ITEM = re.compile(rf"(\S+) : {_NUMBER}(?:\s|$)")
_DLLOGGER_TOTALS = ("train_throughput", "train.total_ips", "total_ips")
_STALL = re.compile(rf"^Ranks waited {_NUMBER} % of the time for data")


@dataclass(slots=True)
class LogFigures:
    """What one rank's log says; a number that it does not say is None.

    Attributes:
        program: tf_cnn_benchmarks, netapp, horovod or nvidia; empty when no line was known.
        model: as the program calls it.
        facts: further header lines by their names.
        steps: number of the last step that was shown.
        loss: of that step.
        images_per_s: of all ranks.
        images_per_s_per_rank: of this rank, with its uncertainty and jitter.
        printed: how many ranks printed a total.
        limited: what a small machine's limits changed, as the program said it.
        stall: share of the time that ranks waited for data, in percent.
    """

    program: str = ""
    model: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    steps: int | None = None
    loss: float | None = None
    images_per_s: float | None = None
    images_per_s_per_rank: float | None = None
    uncertainty: float | None = None
    jitter: float | None = None
    ranks: int | None = None
    printed: int = 0
    limited: str = ""
    stall: float | None = None


def read_figures(lines: Iterable[str]) -> LogFigures:
    """Return the figures of a log; lines of other programs are passed over."""
    known = [line for line in lines if not line.isspace()]
    tagged = [(match, line) for line in known if (match := _TAG.match(line))]
    printed = None
    if tagged:
        lowest = min(int(match[1]) for match, _ in tagged)
        own = [line[match.end() :] for match, line in tagged if int(match[1]) == lowest]
        printed = len({match[1] for match, line in tagged if _is_total(line[match.end() :].rstrip())})
        known = own
    figures = LogFigures()
    for line in known:
        _read_line(figures, line.rstrip("\r\n").rstrip())
    if printed is not None:
        figures.printed = printed
    return figures


def _is_total(line: str) -> bool:
    return bool(_TOTAL.match(line) or _NETAPP_TOTAL.match(line) or _HOROVOD_TOTAL.match(line))


def _read_line(figures: LogFigures, line: str) -> None:
    if match := _HEADER.match(line):
        if match[1] == "Model":
            figures.model = match[2]
        elif match[1] == "TensorFlow":
            figures.program = "tf_cnn_benchmarks"
        figures.facts.setdefault(match[1], match[2])
    elif match := _STEP.match(line):
        if figures.steps is None or int(match[1]) > figures.steps:
            figures.program = figures.program or "tf_cnn_benchmarks"
            figures.steps, figures.loss = int(match[1]), float(match[5])
            figures.images_per_s_per_rank, figures.uncertainty = float(match[2]), float(match[3])
            figures.jitter = float(match[4])
    elif match := _TOTAL.match(line) or _NETAPP_TOTAL.match(line):
        figures.program = "tf_cnn_benchmarks" if line.startswith("total") else "netapp"
        figures.printed += 1
        if figures.images_per_s is None:
            figures.images_per_s = float(match[1])
    elif match := _HOROVOD_RATE.match(line):
        figures.program = "horovod"
        figures.images_per_s_per_rank, figures.uncertainty = float(match[2]), float(match[3])
    elif match := _HOROVOD_TOTAL.match(line):
        figures.printed += 1
        figures.ranks, figures.images_per_s = int(match[1]), float(match[2])
    elif match := _DLLOGGER.match(line):
        _read_dllogger(figures, match[1], match[2])
    elif match := _STALL.match(line):
        figures.stall = float(match[1])
    elif line.startswith(LIMITED):
        figures.limited = line.removeprefix(LIMITED)


def _read_dllogger(figures: LogFigures, step: str, text: str) -> None:
    figures.program = "nvidia"
    values = {name: float(value) for name, value in _DLLOGGER_ITEM.findall(text)}
    if step == "PARAMETER":
        figures.model = (re.search(r"\barch : (\S+)", text) or [figures.model] * 2)[1]
        return
    numbers = [int(word) for word in re.findall(r"\d+", step)]
    if len(numbers) > 1:
        figures.steps = numbers[1] + 1
        figures.loss = values.get("total_loss", values.get("train.loss", figures.loss))
    for name in _DLLOGGER_TOTALS:
        if name in values and not numbers:
            figures.images_per_s, figures.printed = values[name], 1


def summary_lines(figures: LogFigures) -> Iterator[str]:
    """Yield what people want to know of a log, a name and its value in each line."""
    model = figures.model or "unknown"
    if size := figures.facts.get("Batch size"):
        model += f", batch size {size}"
    yield f"program   {figures.program}"
    yield f"model     {model}"
    if figures.steps is not None:
        loss = f", loss {figures.loss:.3f}" if figures.loss is not None else ""
        yield f"steps     {figures.steps}{loss}"
    if figures.images_per_s_per_rank is not None:
        jitter = f" (jitter {figures.jitter:.1f})" if figures.jitter is not None else ""
        uncertainty = f" +/- {figures.uncertainty:.1f}" if figures.uncertainty is not None else ""
        yield f"one rank  {figures.images_per_s_per_rank:,.1f}{uncertainty} images/s{jitter}"
    if figures.images_per_s is None:
        yield "total     not printed (yet)"
    else:
        among = f", as one of {figures.printed} ranks printed it" if figures.printed > 1 else ""
        yield f"total     {figures.images_per_s:,.2f} images/s{among}"
    if figures.stall is not None:
        yield f"data      ranks waited {figures.stall:g} % of the time"
    if figures.limited:
        yield f"limited   {figures.limited}"
