"""Every screen about what waits and runs fits 80 columns, however long names and reasons are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangline.cli import list as job_list
from gangline.cli.explain.text import print_past, print_placement, print_report
from gangline.cli.output import print_table
from gangline.cli.top.command import _print_job, _print_jobs, _print_nodes
from gangline.client.explain.report import placement_report, report
from gangline.client.jobs.cluster_view import view_of
from gangline.client.node_view import view_nodes
from gangline.placement.prediction import Workload
from gangline.workloads.job_view import InstanceView, JobView

from .test_cli_explain import NOW, node, pod, pod_group

LONG = "training-of-a-large-language-model-with-a-long-name"
REASON = "needs 64 nvidia.com/gpu on one node; best node " + LONG + " has 3 free"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[[], str]:
    for module in ("gangline.cli.output", "gangline.cli.top.command"):
        monkeypatch.setattr(f"{module}.terminal_width", lambda: 80)

    def shown() -> str:
        text: str = capsys.readouterr().out
        assert text
        assert [line for line in text.splitlines() if len(line) > 80] == []
        return text

    return shown


def view(**more: Any) -> JobView:
    instance = InstanceView(f"{LONG}-worker-0", "Pending", 5, False, 64, LONG, "10.0.0.1", "10.0.0.2", "", 0)
    values = {
        "name": LONG,
        "namespace": "a-namespace-of-a-team",
        "uid": "u",
        "kind": "MPIJob",
        "status": "SUCCEEDED",
        "trainer": "PYTORCHJOB",
        "duration_s": 200.0,
        "created": "2026-01-01T11:00:00Z",
        "ended": "",
        "priority": "a-priority-class",
        "gpus": 1024,
        "gpus_allocated": 1024,
        "node": LONG,
        "reason": REASON,
        "instances": (instance,),
    }
    return JobView(**(values | more))


def waiting() -> dict[str, Any]:
    """A job of which everything is told that may be."""
    nodes = [node(f"{LONG}-{index}", rack=str(index)) for index in range(2)]
    bound = [
        pod(f"running{index}-0", 6, on=f"{LONG}-{index}", ids=[f"{LONG}-{index}-{gpu}" for gpu in range(6)])
        for index in range(2)
    ]
    waits = [pod("waits-0", 8), pod("waits-1", 8)]
    found = view_of(nodes, [*bound, *waits], [pod_group("waits", 2)])
    value = report(f"mpijob team/{LONG}", None, waits, found, [], {"gangline-scheduler"}, Workload(), NOW)
    gate = {"kind": "SchedulingGated", "message": REASON, "pods": []}
    one = {"name": "gangline-scheduler", "message": REASON, "start": f"gangline scheduler --context {LONG}"}
    return value | {
        "gates": [gate],
        "schedulers": [one],
        "definitions": [REASON],
        "unhealthy": [{"pod": f"{LONG}-0", "node": LONG, "index": 3}],
        "models": {"Tesla V100-SXM2-16GB": [LONG, LONG], "NVIDIA A100-SXM4-80GB": [LONG]},
    }


def test_explain(screen: Callable[[], str]) -> None:
    value = waiting()

    print_report(value)

    text = " ".join(screen().split())
    for said in (REASON, value["message"], value["fix"], value["mayPass"]):
        assert " ".join(said.split()) in text  # nothing is cut
    assert "holds room" in text


def test_explain_with_an_estimate(screen: Callable[[], str]) -> None:
    guess = {"mayStartAbout": "2026-01-01T12:30:00Z", "mayStartByNineOfTen": "2026-01-01T14:30:00Z"}

    print_report(waiting() | guess | {"mayStart": None, "estimatedBy": "history"})

    assert "9 of 10" in " ".join(screen().split())


def test_explain_placement(screen: Callable[[], str]) -> None:
    ids = [f"{LONG}-{index}" for index in range(8)]
    placed = [pod("placed-0", 8, on=LONG, ids=ids)]
    found = view_of([node(LONG)], placed)

    print_placement(placement_report(placed, found, Workload()))

    assert "Placement of 8" in screen()


def test_explain_of_a_run_that_is_over(screen: Callable[[], str]) -> None:
    value = {
        "job": f"mpijob team/{LONG}",
        "state": "failed",
        "message": REASON,
        "began": "2026-01-01T11:00:00Z",
        "ended": "2026-01-01T12:00:00Z",
    }
    print_past(value, LONG, " --context a-context")

    screen()


@pytest.mark.parametrize("wide", [False, True])
def test_list(screen: Callable[[], str], *, wide: bool) -> None:
    print_table(job_list.COLUMNS, [job_list._row(view(), "simulated")] * 2, wide=wide)

    screen()


def test_top_jobs_and_one_job(screen: Callable[[], str]) -> None:
    _print_jobs([view(), view(status="RUNNING")], "simulated", all_namespaces=True)
    screen()

    _print_job(view(), {f"a-namespace-of-a-team/{LONG}-worker-0": tuple(range(8))})
    screen()


def test_top_nodes(screen: Callable[[], str]) -> None:
    labels = {"ack.node.gpu.schedule": "topologie"}
    found = view_of([node(LONG, **labels), node(f"{LONG}-2")], [pod("a-0", 8, on=LONG)])

    _print_nodes(view_nodes(found))

    assert "GPU(Total)" in screen()
