"""Write the Grafana dashboard of deploy/grafana again: `python tools/dashboard.py`.

Panels are built with Grafana's own SDK, whose types are made from Grafana's schemas, so that a field that
Grafana does not have cannot be written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

FILE = Path(__file__).parents[1] / "deploy" / "grafana" / "gangline.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
OURS = '{job=~"$job"}'
"""For metrics whose names others use too: those of the scrape jobs that have Gangline in them."""

SPAN = 8
"""Columns of a panel, of 24."""
HEIGHT = 8


class Panel(NamedTuple):
    """One panel.

    Attributes:
        title: above it.
        unit: Grafana's name of the unit.
        queries: expression and legend of each.
        text: what it says, and what to do about it.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    text: str


def _ended(how: str) -> str:
    return f'sum(increase({{__name__=~"(mpi|training)_operator_jobs_{how}_total"}}[1h]))'


def _quantile(share: float, name: str, by: str = "le", match: str = "") -> str:
    return f"histogram_quantile({share}, sum by ({by}) (rate({name}_bucket{match}[5m])))"


def _grown(name: str) -> str:
    return f"sum(increase(gangline_scheduler_gangs_{name}_total[1h]))"


ROWS: dict[str, tuple[Panel, ...]] = {
    "Jobs": (
        Panel(
            "Jobs",
            "short",
            (("sum by (kind, condition) (gangline_operator_jobs)", "{{kind}} {{condition}}"),),
            "By the last condition that holds of each; finished ones count until they are deleted.",
        ),
        Panel(
            "Ended in the last hour",
            "short",
            ((_ended("successful"), "succeeded"), (_ended("failed"), "failed")),
            "What became of jobs.",
        ),
        Panel(
            "Trainings: done",
            "percentunit",
            (
                (
                    "gangline_train_steps_total / gangline_train_steps_planned",
                    "{{namespace}}/{{job}} {{pod}}",
                ),
            ),
            "Steps done of those planned, as trainings tell it.",
        ),
        Panel(
            "Trainings: rate",
            "short",
            (('{__name__=~"gangline_train_.+_per_second"}', "{{namespace}}/{{job}} {{pod}}"),),
            "Images, tokens or whatever a training counts, each second, all ranks together.",
        ),
        Panel(
            "Trainings: loss",
            "short",
            (("gangline_train_loss", "{{namespace}}/{{job}} {{pod}}"),),
            "Of rank 0's last reported step.",
        ),
        Panel(
            "Trainings: time to the end",
            "s",
            (("gangline_train_remaining_seconds", "{{namespace}}/{{job}} {{pod}}"),),
            "If they go on as they do.",
        ),
    ),
    "Gangs": (
        Panel(
            "Gangs that wait",
            "short",
            (("sum by (reason) (gangline_scheduler_waiting_gangs) > 0 or vector(0)", "{{reason}}"),),
            "By what is in the way; `gangline explain JOB` says it of one.",
        ),
        Panel(
            "Placed, preempted, suspended in the last hour",
            "short",
            tuple((_grown(name), name) for name in ("placed", "preempted", "suspended")),
            "A gang that is placed in two parts counts twice.",
        ),
        Panel(
            "Started anew in the last hour",
            "short",
            (("sum by (reason) (increase(gangline_scheduler_gangs_taken_back_total[1h]))", "{{reason}}"),),
            "Gangs that were bound and taken back.",
        ),
    ),
    "Devices": (
        Panel(
            "GPUs",
            "short",
            (("sum by (kind, state) (gangline_scheduler_gpus)", "{{kind}} {{state}}"),),
            "By the books of the scheduler; simulated ones exist in name only.",
        ),
        Panel(
            "Held, by node",
            "percentunit",
            (
                (
                    'sum by (node) (gangline_scheduler_gpus{state="held"})'
                    " / sum by (node) (gangline_scheduler_gpus)",
                    "{{node}}",
                ),
            ),
            "Share of each node's GPUs that pods hold.",
        ),
        Panel(
            "Held, by gang",
            "short",
            (("topk(20, gangline_scheduler_gang_gpus)", "{{gang}}"),),
            "The twenty gangs that hold most.",
        ),
        Panel(
            "Device plugins: GPUs",
            "short",
            (("sum by (node, state) (gangline_device_plugin_gpus)", "{{node}} {{state}}"),),
            "What kubelets are told.",
        ),
        Panel(
            "Device plugins: allocations",
            "cps",
            (("sum by (pod) (rate(gangline_device_plugin_allocations_total[5m]))", "{{pod}}"),),
            "Containers that were given GPUs, each second.",
        ),
        Panel(
            "Node agent of one machine: GPUs",
            "short",
            (("sum by (node, state) (gangline_agent_gpus)", "{{node}} {{state}}"),),
            "On the one-machine cluster; unhealthy ones are told apart.",
        ),
    ),
    "Operator": (
        Panel(
            "Jobs that wait for a worker",
            "short",
            (("sum(gangline_operator_queue_depth)", "jobs"),),
            "Lastingly above 0: too few workers, or a slow API server.",
        ),
        Panel(
            "Reconcile",
            "s",
            (
                (_quantile(0.5, "gangline_operator_reconcile_seconds"), "median"),
                (_quantile(0.99, "gangline_operator_reconcile_seconds"), "99 %"),
                (_quantile(0.99, "gangline_operator_decide_seconds"), "deciding, 99 %"),
            ),
            "From taking a job to having written everything.",
        ),
        Panel(
            "Tried again, events lost",
            "cps",
            (
                ("sum(rate(gangline_operator_retries_total[5m]))", "reconciles tried again"),
                ("sum(rate(gangline_operator_events_dropped_total[5m]))", "events lost"),
                ("sum(rate(gangline_watch_restarts_total[5m]))", "watches begun anew"),
            ),
            "Lastingly above 0: something is refused again and again; the operator's log says what.",
        ),
    ),
    "Scheduler": (
        Panel(
            "A pass",
            "s",
            (
                (_quantile(0.5, "gangline_scheduler_pass_seconds"), "median"),
                (_quantile(0.99, "gangline_scheduler_pass_seconds"), "99 %"),
            ),
            "Time to decide about all waiting gangs once.",
        ),
        Panel(
            "Pods bound",
            "cps",
            (
                ("sum(rate(gangline_scheduler_pods_bound_total[5m]))", "bound"),
                ("sum(rate(gangline_scheduler_bind_failures_total[5m]))", "refused"),
            ),
            "Refused bindings are tried again; lastingly above 0 a right is missing.",
        ),
        Panel(
            "Requests of our services",
            "reqps",
            (
                (
                    "sum by (component, pod, code) (rate(gangline_api_requests_total[5m]))",
                    "{{component}} {{pod}} {{code}}",
                ),
            ),
            "To the API server, by answer; 403 means that a right is missing.",
        ),
    ),
    "API server and processes": (
        Panel(
            "Requests",
            "reqps",
            ((f"sum by (verb, code) (rate(apiserver_request_total{OURS}[5m]))", "{{verb}} {{code}}"),),
            "At the API server of the one-machine cluster.",
        ),
        Panel(
            "Time to answer, 99 %",
            "s",
            (
                (
                    _quantile(0.99, "apiserver_request_duration_seconds", "le, verb", OURS),
                    "{{verb}}",
                ),
            ),
            "Without watches.",
        ),
        Panel(
            "Objects and watches",
            "short",
            (
                (f"topk(10, sum by (resource) (apiserver_resource_objects{OURS}))", "{{resource}}"),
                (f"sum(apiserver_longrunning_requests{OURS})", "watches"),
            ),
            "What the API server holds.",
        ),
        Panel(
            "Memory",
            "bytes",
            ((f"process_resident_memory_bytes{OURS}", "{{component}} {{pod}}"),),
            "Of each process of Gangline.",
        ),
        Panel(
            "Processor time",
            "percentunit",
            ((f"rate(process_cpu_seconds_total{OURS}[5m])", "{{component}} {{pod}}"),),
            "Of each process of Gangline; 100 % is one core.",
        ),
        Panel(
            "Containers",
            "percentunit",
            (
                (
                    f"topk(20, sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{OURS}[5m])))",
                    "{{namespace}}/{{pod}}",
                ),
                (f"sum(kubelet_running_pods{OURS})", "pods that run"),
            ),
            "Processor time of the pods of one machine; 100 % is one core.",
        ),
    ),
}


def build() -> dashboard.Dashboard:
    """Return the dashboard."""
    found = (
        dashboard.Dashboard("Gangline")
        .uid("gangline")
        .description("Jobs, gangs, devices, and the services that run them. See docs/guides/monitoring.md.")
        .tags(["gangline"])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("job")
            .label("Scrape job")
            .datasource(SOURCE)
            .query("label_values(gangline_build_info, job)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(True)
            .multi(True)
            .all_value(".+")
        )
    )
    numbers = count(1)
    for title, panels in ROWS.items():
        found = found.with_row(dashboard.Row(title).id(next(numbers)))
        for panel in panels:
            found = found.with_panel(_panel(panel).id(next(numbers)))
    return found


def _panel(panel: Panel) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(SOURCE)
        .unit(panel.unit)
        .min(0)
        .span(SPAN)
        .height(HEIGHT)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    for place, (expression, legend) in enumerate(panel.queries):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).range()
        built = built.with_target(query.ref_id(chr(ord("A") + place)).datasource(SOURCE))
    return built


def text() -> str:
    """Return the file's content."""
    return json.dumps(build().build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with each of its expressions."""
    for panels in ROWS.values():
        for panel in panels:
            for expression, _ in panel.queries:
                yield panel.title, expression


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text())
    sys.stdout.write(f"{FILE.name}: {sum(1 for _ in queries())} queries\n")
