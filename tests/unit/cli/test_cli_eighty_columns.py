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
from gangline.workloads.start_gates import gates_of

from .test_cli_explain import NOW, job, node, pod, pod_group

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


def gated(found: dict[str, Any] | None, *pods: dict[str, Any], **more: Any) -> dict[str, Any]:
    gates = gates_of(found, pods, **more)
    view = view_of([], list(pods))
    return report(f"job team/{LONG}", found, pods, view, gates, {"gangline-scheduler"}, Workload(), NOW)


def without_rights() -> dict[str, Any]:
    lacking = ["list nodes", "list pods of all namespaces", "list podgroups.scheduling.x-k8s.io"]
    value = gated(job(), pod(f"{LONG}-0")) | {"message": REASON, "lacking": lacking, "state": "waits"}
    del value["gang"]
    return value


def without_a_scheduler() -> dict[str, Any]:
    start = f"gangline scheduler --kubeconfig clusters.yaml --context {LONG}"
    one = {"name": "gangline-scheduler", "message": "places its pods, and does not run", "start": start}
    return gated(job(), pod(f"{LONG}-0")) | {"schedulers": [one]}


def by_another_scheduler() -> dict[str, Any]:
    held = pod(f"{LONG}-0", schedulerName="volcano")
    verdict = {"type": "Unschedulable", "message": REASON}
    return gated(None, held, schedulers=["gangline-scheduler"]) | {"verdict": verdict}


def giving_way() -> dict[str, Any]:
    one = {"gang": f"a-namespace-of-a-team/{LONG}", "isBegun": True, "endsBy": "2026-01-01T12:05:00Z"}
    return waiting() | {"suspended": [one], "mayStart": "2026-01-01T12:05:00Z"}


def on_a_lost_node() -> dict[str, Any]:
    kept = pod(f"{LONG}-0", on=LONG)
    kept["metadata"]["deletionTimestamp"] = "2026-01-01T11:50:00Z"
    return gated(job(), kept, now=NOW)


def answered() -> dict[str, Any]:
    return waiting() | {"answered": {"by": f"gangline-scheduler-{LONG}", "asOf": "2026-01-01T11:59:00Z"}}


QUEUED = {"kueue.x-k8s.io/queue-name": LONG}
REFUSED = (
    f'pods "{LONG}-0" is forbidden: exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2'
)
CLAIMED = [{"name": "data", "persistentVolumeClaim": {"claimName": LONG}}]


@pytest.mark.parametrize("columns", [80, None], ids=["terminal", "pipe"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: gated(job(suspend=True)), "whoever set it must set it to false"),
        (lambda: gated(job(suspend=True, labels=QUEUED)), "suspended by Kueue: it waits in queue"),
        (lambda: gated(job()), "has not made its pods yet"),
        (lambda: gated(job(), complaints=[{"message": REFUSED}]), "limited: pods=2"),
        (lambda: gated(job(), pod("g-0", schedulingGates=[{"name": LONG}])), "whoever set it must take it"),
        (
            lambda: gated(job(), pod("g-0", volumes=CLAIMED), claims=[{"metadata": {"name": "x"}}]),
            "not Bound",
        ),
        (on_a_lost_node, "node.kubernetes.io/out-of-service lets it go"),
        (by_another_scheduler, "what follows is what Gangline's rules say"),
        (without_a_scheduler, f".yaml --context {LONG}"),
        (without_rights, "or to list podgroups.scheduling.x-k8s.io"),
        (giving_way, "until there is room for it again; its pods end by"),
        (answered, f"gangline-scheduler-{LONG}, "),
    ],
)
def test_explain_of_every_kind_of_waiting(
    screen: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    value: Callable[[], dict[str, Any]],
    words: str,
    columns: int | None,
) -> None:
    monkeypatch.setattr("gangline.cli.output.terminal_width", lambda: columns)
    monkeypatch.delenv("COLUMNS", raising=False)

    print_report(value())

    assert words in " ".join(screen().replace(" \\\n", "\n").split())


def test_a_pipe_is_as_wide_as_its_user_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")

    print_report(gated(job(suspend=True, labels=QUEUED)))

    assert len(capsys.readouterr().out.splitlines()) == 2  # for a search by line


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
