"""Why a job waits: gates that others open, and the report of what placement says."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gangline.cli.explain.text import print_placement, print_report
from gangline.client.explain.report import placement_report, report
from gangline.client.explain.subject import _is_of
from gangline.client.explain.suspension import with_services
from gangline.client.explain.training_progress import TrainingProgress
from gangline.client.explain.workload import read_workload
from gangline.client.jobs.cluster_view import view_of
from gangline.cluster.runs.record import RunRecord
from gangline.errors import UserError
from gangline.placement.claims.volumes import Storage
from gangline.placement.prediction import Workload
from gangline.scheduler.explained.published import Published
from gangline.topology.known import known_machine
from gangline.workloads.start_gates import gates_of
from gangline.workloads.suspension import FIELD_MANAGER, RESUMABLE_ANNOTATION, SUSPENDED_ANNOTATION

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def node(name: str, **labels: str) -> dict[str, Any]:
    note = known_machine("v100-dgx1").annotation([f"{name}-{index}" for index in range(8)])
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"gangline.dev/gpu-topology": json.dumps(note)},
        },
        "status": {
            "allocatable": {"cpu": "80", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str, gpus: int = 1, *, on: str = "", ids: list[str] | None = None, **spec: Any
) -> dict[str, Any]:
    notes = {"gangline.dev/gpus": json.dumps({"w": ids})} if ids else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "creationTimestamp": "2026-01-01T11:00:00Z",
            "annotations": notes,
            "labels": {"scheduling.x-k8s.io/pod-group": name.partition("-")[0]},
        },
        "spec": {
            "schedulerName": "gangline-scheduler",
            "nodeName": on,
            "containers": [{"name": "w", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def pod_group(name: str, size: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"minMember": size}}


def job(**spec: Any) -> dict[str, Any]:
    labels = spec.pop("labels", {})
    metadata = {"name": "g", "namespace": "team", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def kinds(*args: Any, **more: Any) -> list[str]:
    return [gate.kind for gate in gates_of(*args, **more)]


def test_a_pod_that_its_lost_node_keeps_is_what_a_job_waits_for(capsys: Any) -> None:
    kept = pod("g-0", on="n1")
    kept["metadata"]["deletionTimestamp"] = "2026-01-01T11:50:00Z"
    gates = gates_of(job(), [kept], now=NOW)

    value = report("job team/g", job(), [kept], view_of([], [kept]), gates, set(), Workload(), NOW)
    print_report(value)

    assert capsys.readouterr().out == (
        "job team/g waits\n"
        "  gate          Terminating: pod g-0 was deleted, and node n1 does not confirm\n"
        "                its end: if it is lost, `kubectl delete node n1` or the taint\n"
        "                node.kubernetes.io/out-of-service lets it go\n"
    )
    assert gates_of(job(), [kept], now=datetime(2026, 1, 1, 11, 50, 29, tzinfo=UTC)) == []


def test_a_job_that_kueue_suspends_names_its_queue():
    gate = gates_of(job(suspend=True, labels={"kueue.x-k8s.io/queue-name": "night"}), [])[0]

    assert gate.kind == "Suspended"
    assert gate.message.startswith("suspended by Kueue: it waits in queue `night`")


def test_a_job_suspended_by_hand_names_the_field():
    assert gates_of(job(suspend=True), [])[0].message.startswith("`spec.suspend` is true")


def test_a_job_without_pods_says_who_makes_them():
    assert kinds(job(), []) == ["NoPods"]


def test_scheduling_gates_are_named_with_who_opens_them():
    held = pod("g-0", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])

    gate = gates_of(None, [held])[0]

    assert (gate.kind, gate.pods) == ("SchedulingGated", ("g-0",))
    assert "Kueue takes it away on admission" in gate.message


def test_a_claim_that_is_not_bound_is_named():
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "images"}}]
    claims = [{"metadata": {"name": "images"}, "status": {"phase": "Pending"}}]

    gates = gates_of(None, [pod("g-0", volumes=volumes)], claims=claims)

    assert [gate.message for gate in gates] == ["PersistentVolumeClaim `images` is Pending, not Bound"]
    claims[0]["status"]["phase"] = "Bound"
    assert gates_of(None, [pod("g-0", volumes=volumes)], claims=claims) == []


def test_an_image_that_cannot_be_pulled_is_named():
    held = pod("g-0", on="a")
    held["status"] = {
        "phase": "Pending",
        "containerStatuses": [
            {"name": "w", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
        ],
    }

    assert [(gate.kind, gate.message) for gate in gates_of(None, [held])] == [
        ("ImagePullBackOff", "1 pod on a node: no such image")
    ]


def test_pods_of_another_scheduler_are_said_to_be():
    assert kinds(None, [pod("g-0", schedulerName="volcano")], schedulers=["gangline-scheduler"]) == [
        "OtherScheduler"
    ]


def test_a_waiting_gang_is_reported_with_reason_shortfall_fix_and_place():
    bound = [pod(f"x-{index}", on="a", ids=[f"a-{index}"]) for index in range(2)]
    waiting = [pod(f"g-{index}") for index in range(8)]
    view = view_of([node("a")], [*bound, *waiting], [pod_group("g", 8), pod_group("x", 2)])

    found = report("podgroup team/g", None, waiting, view, [], {"gangline-scheduler"}, Workload(), NOW)

    assert (found["state"], found["reason"], found["gang"]) == ("waits", "NoRoom", "team/g")
    assert found["message"] == (
        "needs room for 8 pods of 1 simulated nvidia.com/gpu at once; there is room for 6"
    )
    assert found["fix"].startswith("fits when gang team/x ends")
    assert (found["position"], found["waitingInQueue"]) == (1, 1)


def test_devices_of_several_models_under_one_gang_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    product = "nvidia.com/gpu.product"
    nodes = [node("a", **{product: "H100"}), node("b", **{product: "A100"}), node("c", **{product: "H100"})]
    placed = [pod(f"g-{name}", on=name, ids=[f"{name}-0"]) for name in "abc"]
    view = view_of(nodes, placed, [pod_group("g", 3)])

    mixed = report("podgroup team/g", None, placed, view, [], {"gangline-scheduler"}, Workload(), NOW)
    alike = report("podgroup team/g", None, placed[::2], view, [], set(), Workload(), NOW)

    assert mixed["models"] == {"A100": ["b"], "H100": ["a", "c"]}
    print_report(mixed)
    said = "  devices       of 2 models, the slowest sets the pace: A100 on b; H100 on a, c\n"
    assert said in capsys.readouterr().out
    print_report(alike)
    assert "models" not in capsys.readouterr().out


def test_a_placement_is_reported_beside_the_best_and_first_fit():
    placed = [pod(f"g-{index}", on="a", ids=[f"a-{gpu}"]) for index, gpu in enumerate((0, 1, 4, 5))]
    view = view_of([node("a")], placed, [pod_group("g", 4)])

    found = placement_report(placed, view, Workload())

    assert sorted(found["chosen"]["nodes"][0]["ring"]) == [0, 1, 4, 5]
    assert found["best"]["busGBPerSecond"] == 80.0  # three rings of NVLink through a quad of a DGX-1 V100
    assert found["chosen"]["busGBPerSecond"] < 80.0
    assert sorted(found["naive"]["nodes"][0]["ring"]) == [0, 1, 2, 3]
    assert found["simulated"]


def test_a_model_of_which_nobody_knows_the_step_is_refused():
    with pytest.raises(UserError, match="how long its step takes"):
        read_workload("bert-large", None, "")
    with pytest.raises(UserError, match="no model of that name"):
        read_workload("nothing", None, "")
    assert read_workload("bert-large", 250, "rack:4").training.compute_s == 0.25


@pytest.mark.parametrize(
    ("owner", "kind", "name", "want"),
    [
        ({"kind": "PyTorchJob", "name": "bert"}, "pytorchjob", "bert", True),
        ({"kind": "PyTorchJob", "name": "bert"}, "", "bert", True),
        ({"kind": "PyTorchJob", "name": "bert"}, "tfjob", "bert", False),
        ({"kind": "ReplicaSet", "name": "web-7d9f"}, "deployment", "web", True),
        ({"kind": "ReplicaSet", "name": "web-7d9f"}, "deployment", "we", False),
    ],
)
def test_pods_of_any_kind_are_found_by_their_owner(owner, kind, name, want):
    owned = pod("p-0")
    owned["metadata"]["ownerReferences"] = [owner]

    assert _is_of(owned, kind, name) is want


@pytest.mark.parametrize(
    ("label", "kind", "want"),
    [
        ("jobset.sigs.k8s.io/jobset-name", "jobset", True),
        ("jobset.sigs.k8s.io/jobset-name", "", True),
        ("leaderworkerset.sigs.k8s.io/name", "lws", True),
        ("leaderworkerset.sigs.k8s.io/name", "jobset", False),
    ],
)
def test_pods_of_a_set_are_found_by_its_label(label: str, kind: str, want: bool) -> None:
    member = pod("p-0")
    member["metadata"]["labels"] = {label: "train"}

    assert _is_of(member, kind, "train") is want


def test_gpus_that_are_real_are_not_called_simulated():
    real = node("a")
    real["metadata"]["annotations"]["gangline.dev/gpu-topology"] = real["metadata"]["annotations"][
        "gangline.dev/gpu-topology"
    ].replace("simulated", "nvml")
    waiting = [pod(f"g-{index}") for index in range(9)]
    view = view_of([real], waiting, [pod_group("g", 9)])

    found = report("podgroup team/g", None, waiting, view, [], {"gangline-scheduler"}, Workload(), NOW)

    assert found["message"] == "needs room for 9 pods of 1 nvidia.com/gpu at once; there is room for 8"


def test_an_unhealthy_gpu_under_a_pod_is_named():
    sick = node("a")
    note = known_machine("v100-dgx1").annotation([f"a-{index}" for index in range(8)], unhealthy=(3,))
    sick["metadata"]["annotations"]["gangline.dev/gpu-topology"] = json.dumps(note)
    alone = pod("x", on="a", ids=["a-2", "a-3"])
    view = view_of([sick], [alone])

    found = report("pod team/x", None, [alone], view, [], {"gangline-scheduler"}, Workload(), NOW)

    assert found["unhealthy"] == [{"pod": "x", "node": "a", "index": 3}]


def test_the_measured_step_time_stands_beside_the_predicted_ones():
    pods = [pod(f"x-{index}", on="a", ids=[f"a-{index}"]) for index in range(4)]
    view = view_of([node("a")], pods, [pod_group("x", 4)])
    measured = TrainingProgress(step=30, steps=100, step_s=0.3151, over=20, ends=None)

    value = placement_report(pods, view, Workload(), measured)

    assert value["measured"] == {"stepSeconds": 0.3151, "overSteps": 20}
    assert value["chosen"]["stepSeconds"] > 0
    assert placement_report(pods, view, Workload())["measured"] is None


def test_nodes_whose_plugin_chooses_are_named_with_the_placement():
    plain = node("a")
    plain["metadata"]["annotations"].clear()
    pods = [pod("x-0", 4, on="a")]

    value = placement_report(pods, view_of([plain], pods), Workload())

    assert (value["chosen"], value["nodesByPlugin"]) == (None, ["a"])


@pytest.mark.parametrize("resource", ["amd.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_gpus_of_others_and_slices_have_a_placement_too(resource: str, capsys: pytest.CaptureFixture[str]):
    plain, holder = node("a"), pod("x-0", 4, on="a")
    plain["metadata"]["annotations"].clear()
    plain["status"]["allocatable"] |= {resource: "8"}
    holder["spec"]["containers"][0]["resources"] = {"limits": {resource: "4"}}

    print_placement(placement_report([holder], view_of([plain], [holder]), Workload()))

    said = " ".join(capsys.readouterr().out.split())
    assert "4 GPUs; which ones, or their links, is known to the device plugin of a alone" in said


def test_a_resource_quota_that_keeps_pods_from_being_made_is_a_gate():
    job = {"kind": "MPIJob", "metadata": {"name": "x", "namespace": "team"}, "spec": {}}
    refusal = (
        'worker pod created failed: pods "x-worker-0" is forbidden: exceeded quota: team, limited: pods=2'
    )
    complaints = [
        {"reason": "MPIJobFailed", "message": refusal},
        {"reason": "FailedCreate", "message": "old"},
    ]

    [none, gate] = gates_of(job, [], complaints=complaints)
    assert (none.kind, gate.kind) == ("NoPods", "QuotaExceeded")
    assert gate.message.endswith(refusal)

    [_, other] = gates_of(job, [], complaints=complaints[1:])
    assert (other.kind, other.message) == ("NotMade", "pods of it cannot be made: old")


def test_nodes_of_a_local_volume_are_honoured_in_the_answer():
    on_b = {"key": "disk", "operator": "In", "values": ["b"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_b]}]}}
    claim = {"metadata": {"name": "data", "namespace": "team"}, "spec": {"volumeName": "pv"}}
    storage = Storage()
    storage.take(
        [claim | {"status": {"phase": "Bound"}}],
        [{"metadata": {"name": "pv"}, "spec": {"nodeAffinity": affinity}}],
        [],
    )
    waits = pod("solo", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    del waits["metadata"]["labels"]

    def reason(**labels: str) -> str:
        view = view_of([node("a", **labels)], [waits], storage=storage)
        return str(report("pod", None, [waits], view, [], {"gangline-scheduler"}, Workload(), NOW)["reason"])

    assert (reason(disk="b"), reason(disk="a")) == ("Fits", "NoNode")


def test_each_way_that_would_help_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ("never", "split", "node", "fewer")
    value = {
        "job": "pod team/big",
        "state": "waits",
        "reason": "NoRoom",
        "gates": [],
        "unhealthy": [],
        "gang": "team/big",
        "otherGangs": 0,
        "message": "needs room",
        "fix": "never; fits split, or node",
        "fixes": [{"kind": kind, "line": f"fits {kind}", "speed": None} for kind in kinds],
        "position": 0,
        "mayStart": None,
    }
    print_report(value)

    assert [line.split("  ")[-1].strip() for line in capsys.readouterr().out.splitlines()[-2:]] == [
        "never; fits split, or node",
        "fits fewer",
    ]


def resumable(*, is_suspended: bool) -> dict[str, Any]:
    """Return a Job that can go on, which the scheduler has suspended, or not."""
    metadata = {"name": "a", "namespace": "team", "uid": "a", "annotations": {RESUMABLE_ANNOTATION: "true"}}
    if is_suspended:
        metadata["annotations"][SUSPENDED_ANNOTATION] = "gives way"
        written = {"f:spec": {"f:suspend": {}}}
        metadata["managedFields"] = [{"manager": FIELD_MANAGER, "fieldsV1": written}]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": is_suspended}}


@pytest.mark.parametrize(
    ("is_suspended", "reason", "ends_by"),
    [(False, "NoRoom", None), (True, "Suspending", "2026-01-01T12:00:20Z")],
)
def test_a_gang_that_profits_from_a_suspension_says_whose_and_until_when(
    is_suspended: bool, reason: str, ends_by: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    held = pod("a-0", 8, on="n1", ids=[f"n1-{index}" for index in range(8)])
    held["spec"]["terminationGracePeriodSeconds"] = 20
    held["metadata"]["labels"] |= {
        "batch.kubernetes.io/controller-uid": "a",
        "batch.kubernetes.io/job-name": "a",
    }
    held["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "a", "uid": "a", "controller": True}]
    held["status"]["startTime"] = "2026-01-01T11:55:00Z"
    waiting = pod("g-0", 8)
    waiting["metadata"]["creationTimestamp"] = "2026-01-01T11:59:00Z"
    groups = [pod_group("a", 1), pod_group("g", 1)]
    record = RunRecord(job=resumable(is_suspended=is_suspended), pods=[held])
    view = with_services(view_of([node("n1")], [held, waiting], groups), [record])

    asked = [], ["gangline-scheduler"], Workload(), NOW
    value = report("job team/g", None, [waiting], view, *asked)
    print_report(value)

    assert value["reason"] == reason
    text = " ".join(capsys.readouterr().out.split())
    if ends_by is None:
        assert value["suspended"] == []
        assert "fits when team/a is suspended for it (from 12:05:00 UTC)" in text
    else:
        assert value["suspended"] == [{"gang": "team/a", "isBegun": True, "endsBy": ends_by}]
        assert f"gives way team/a, until there is room for it again; its pods end by {ends_by}" in text


def test_nodes_that_the_scheduler_does_not_use_do_not_count():
    bound = pod("x-0", on="b", ids=["b-0"])
    waiting = [pod(f"g-{index}") for index in range(16)]
    view = view_of([node("a", pool="a"), node("b")], [bound, *waiting], [pod_group("g", 16)])

    seen = view.as_seen_by(Published(names=("gangline-scheduler",), node_selector="pool=a"))
    found = report("podgroup team/g", None, waiting, seen, [], {"gangline-scheduler"}, Workload(), NOW)

    assert found["message"].endswith("there is room for 8")
