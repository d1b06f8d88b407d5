"""GPUs of nodes and who holds them, as `gangline top node` shows them."""

import json
from typing import Any

from gangline.cli.top.command import _details, _print_nodes
from gangline.client.jobs.cluster_view import view_of
from gangline.client.node_view import NodeGpuView, grid, node_report, view_nodes
from gangline.topology.known import known_machine


def node(name: str, *, unhealthy: tuple[int, ...] = (), known: bool = True, **labels: str) -> dict[str, Any]:
    note = known_machine("v100-dgx1").annotation(
        [f"{name}-{index}" for index in range(8)], unhealthy=unhealthy
    )
    return {
        "metadata": {
            "name": name,
            "labels": {label.replace("_", "."): value for label, value in labels.items()},
            "annotations": {"gangline.dev/gpu-topology": json.dumps(note)} if known else {},
        },
        "status": {
            "allocatable": {"cpu": "80", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def pod(name: str, on: str, *ids: str, job: str = "", gpus: int = 0) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "labels": {"training.kubeflow.org/job-name": job} if job else {},
            "annotations": {"gangline.dev/gpus": json.dumps({"w": ids})} if ids else {},
        },
        "spec": {
            "nodeName": on,
            "containers": [{"name": "w", "resources": {"limits": {"nvidia.com/gpu": str(gpus or len(ids))}}}],
        },
        "status": {"phase": "Running"},
    }


def seen(*objects: dict[str, Any]) -> list[NodeGpuView]:
    nodes = [entry for entry in objects if "allocatable" in entry["status"]]
    return view_nodes(view_of(nodes, [entry for entry in objects if entry not in nodes]))


def test_each_gpu_has_the_sign_of_its_job():
    nodes = seen(
        node("a", unhealthy=(1, 6), ack_node_gpu_schedule="topology"),
        node("b"),
        pod("g-0", "a", "a-0", job="g"),
        pod("g-1", "a", "a-1", job="g"),
        pod("h", "b", "b-7", "b-3"),
    )

    assert grid(nodes) == [
        "a  A  A! .  .  .  .  x  .   v100-dgx1, topology",
        "b  .  .  .  B  .  .  .  B   v100-dgx1, exclusive",
        "A  team/g: 2",
        "B  team/h: 2",
    ]


def test_the_report_has_indices_by_pod_and_both_matrices():
    found = node_report(seen(node("a"), pod("h", "a", "a-7", "a-3"))[0])

    assert found["instances"] == [
        {"namespace": "team", "name": "h", "requestGPUs": 2, "allocatedGPUs": [7, 3]}
    ]
    assert (found["totalGPUs"], found["allocatedGPUs"], found["unhealthyGPUs"]) == (8, 2, 0)
    assert found["linkTypeMatrix"][0][:4] == ["X", "NV1", "NV1", "NV2"]  # a DGX-1 V100
    assert found["predictedBandwidthMatrix"][0][:4] == [0.0, 20.0, 20.0, 40.0]
    assert [device["id"] for device in found["devices"] if device["status"] == "using"] == [3, 7]


def test_where_the_plugin_chooses_only_numbers_are_known():
    row = seen(node("a", known=False), pod("h", "a", gpus=3))[0]

    assert (row.total, row.allocated, row.gpus) == (8, 3, ())
    assert row.holders[0].indices is None
    assert grid([row]) == ["a  3 of 8 held; which, its own device plugin chooses and does not tell"]
    assert node_report(row)["idsChosenBy"] == "device plugin"


def test_a_label_alone_does_not_make_a_node_one_whose_gpus_are_chosen_by_links():
    modes = [
        seen(node("a", known=known, ack_node_gpu_schedule="topology"))[0].mode for known in (True, False)
    ]
    assert modes == ["topology", "exclusive"]


def test_a_mode_that_is_not_known_has_a_line_of_its_own(capsys):
    rows = seen(node("a", ack_node_gpu_schedule="weird"), node("b"))
    _print_nodes(rows)
    last = capsys.readouterr().out.rpartition("\n\n")[2]

    said = "node a: ack.node.gpu.schedule=weird is not known and counts as default"
    assert " ".join(last.split()).startswith(said)
    assert [node_report(row)["note"] is None for row in rows] == [False, True]


def test_the_table_has_arenas_columns_and_totals(capsys):
    _print_nodes(seen(node("a"), node("b"), pod("h", "a", "a-0")))
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].split() == ["NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)"]
    assert lines[1].split() == ["a", "10.0.0.1", "<none>", "Ready", "8", "1"]
    assert set(lines[3]) == {"-"}
    assert lines[4:6] == ["Allocated/Total GPUs In Cluster:", "1/16 (6.2%)"]


def test_modes_and_unhealthy_gpus_have_a_column_where_there_are_some(capsys):
    _print_nodes(seen(node("a", ack_node_gpu_schedule="topology"), node("b", unhealthy=(0,))))
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].split()[-2:] == ["GPU(Mode)", "UNHEALTHY"]
    assert [line.split()[-2:] for line in lines[1:3]] == [["topology", "0"], ["exclusive", "1"]]
    assert "Unhealthy/Total GPUs In Cluster:" in lines


def test_slices_and_other_makers_gpus_are_shown_as_theirs():
    mixed = node("a", known=False)
    mixed["status"]["allocatable"] = {
        "nvidia.com/gpu": "2",
        "nvidia.com/mig-1g.10gb": "7",
        "amd.com/cpx_nps4": "8",
        "rdma/hca": "4",
    }
    holder = pod("h", "a", gpus=1)
    holder["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/mig-1g.10gb": "2", "amd.com/cpx_nps4": "1"}
    }

    (row,) = seen(mixed, holder)

    found = node_report(row)
    assert (found["totalGPUs"], found["allocatedGPUs"]) == (17, 3)
    assert found["resources"] == {"amd.com/cpx_nps4": 8, "nvidia.com/gpu": 2, "nvidia.com/mig-1g.10gb": 7}
    assert found["idsChosenBy"] == "device plugin"
    assert "Has:      8 amd.com/cpx_nps4, 2 nvidia.com/gpu, 7 nvidia.com/mig-1g.10gb" in _details(row)
