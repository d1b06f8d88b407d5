"""GPUs on the command line: what is too much, how it is made to fit, and what each rank sees."""

from __future__ import annotations

import copy
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.codec import Document
from gangline.api.core import Pod
from gangline.api.mpijob_reading import read_mpijob
from gangline.client.jobs.gpu_kind import gpu_cell, kind_of_nodes
from gangline.client.run.gpus import COMMAND_LINE, GpuOptions, fitting
from gangline.cluster.daemon.cluster_facts import ClusterFacts
from gangline.cluster.daemon.simulation import Simulation, refuse_another
from gangline.cluster.paths import ClusterPaths
from gangline.devices.ledger import GpuRequest
from gangline.errors import UnschedulableError, UserError
from gangline.kube.client import ObjectList
from gangline.launch.mpi import MpiInstallation
from gangline.launch.mpirun import rank_script
from gangline.placement.snapshot import PodView
from gangline.workloads.gpu_demand import GpuDemand, GpuRoom, nodes_for
from gangline.workloads.gpu_fit import JobSize, fit_object, fit_shape
from gangline.workloads.job_state import requested_gpus
from gangline.workloads.job_view import view_pod

REAL_2 = GpuRoom((2,), "real", cores=4)
SIMULATED = GpuRoom((8, 8), "simulated", cores=4)


def mpijob(workers: int, gpus: int, *, slots: int | None = None, command: Any = None) -> dict[str, Any]:
    ranks = workers * (slots or gpus)
    launcher = {"name": "l", "image": "i", "command": command or ["mpirun", "-np", str(ranks), "train"]}
    worker = {"name": "w", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "big"},
        "spec": {
            "slotsPerWorker": slots or gpus,
            "mpiReplicaSpecs": {
                "Launcher": {"template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": workers, "template": {"spec": {"containers": [worker]}}},
            },
        },
    }


def command_of(job: dict[str, Any]) -> list[str]:
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    return list(launcher["command"])


@pytest.mark.parametrize(
    ("job", "room", "words"),
    [
        (mpijob(2, 8), REAL_2, "it asks for 16 GPUs in 2 pods of 8, this machine has 2"),
        (mpijob(1, 16), REAL_2, "it asks for 16 GPUs, this machine has 2"),
        (mpijob(1, 1), GpuRoom((0,)), "it asks for 1 GPU, this machine has none"),
        (mpijob(17, 1), SIMULATED, "it asks for 17 GPUs in 17 pods of 1, this cluster has 16 simulated GPUs"),
        (mpijob(1, 16), SIMULATED, "one of its pods asks 16 GPUs, the largest node has 8 simulated GPUs"),
        (
            mpijob(3, 5),
            SIMULATED,
            "it asks for 3 pods of 5 GPUs at once, 2 fit on nodes with 8 + 8 simulated GPUs",
        ),
        (mpijob(2, 8), SIMULATED, ""),
        (mpijob(16, 1), SIMULATED, ""),
    ],
)
def test_what_can_never_be_had(job: dict[str, Any], room: GpuRoom, words: str) -> None:
    assert GpuDemand.of(job).shortage(room) == words


@pytest.mark.parametrize(("per_rank", "is_spread"), [(1, True), (8, True), (16, False)])
def test_ranks_are_to_be_spread_where_a_node_has_enough_gpus_for_one(per_rank: int, is_spread: bool) -> None:
    class Cluster:
        paths = ClusterPaths.of("test")

        def call(self, _ask: Any) -> Any:
            node = {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
            return ObjectList([node, node], "1")

    document = Document(mpijob(1, 16, slots=16 // per_rank), file=COMMAND_LINE)

    with pytest.raises(UnschedulableError) as caught:
        fitting(Cluster(), [document], GpuOptions(per_rank=per_rank))  # type: ignore[arg-type]

    assert ("`--nodes 2` spreads the ranks" in str(caught.value.hint)) == is_spread


def first_version(**spec: Any) -> dict[str, Any]:
    """An MPIJob of v1alpha1; ``gpus_of_container`` is a limit in its template."""
    gpus = spec.pop("gpus_of_container", None)
    container = {"name": "m", "image": "i", "command": ["mpirun", "-n", "16", "x"]}
    if gpus is not None:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    spec["template"] = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "MPIJob",
        "metadata": {"name": "old"},
        "spec": spec,
    }


def test_old_versions_ask_in_their_own_words() -> None:
    assert GpuDemand.of(first_version(gpus=16, gpusPerNode=8)) == GpuDemand(pods=2, each=8)


@pytest.mark.parametrize(
    ("job", "fitted"),
    [
        (first_version(gpus=16, gpusPerNode=8), {"gpus": 2, "gpusPerNode": 2, "slotsPerWorker": 2}),
        (first_version(gpus=16), {"gpus": 2, "gpusPerNode": 1, "slotsPerWorker": 1}),
        (
            first_version(
                processingUnits=16, processingUnitsPerNode=8, processingResourceType="nvidia.com/gpu"
            ),
            {"processingUnits": 2, "processingUnitsPerNode": 2, "slotsPerWorker": 2},
        ),
        (first_version(replicas=2, gpus_of_container=8), {"replicas": 1, "slotsPerWorker": 2}),
        (first_version(replicas=4, gpus_of_container=1), {"replicas": 2, "slotsPerWorker": 1}),
    ],
)
def test_the_first_version_is_made_to_fit_in_its_own_words(
    job: dict[str, Any], fitted: dict[str, Any]
) -> None:
    smaller, changes = fit_object(job, REAL_2)

    assert smaller["apiVersion"] == "kubeflow.org/v1alpha1"
    assert fitted.items() <= smaller["spec"].items()
    assert read_mpijob(smaller).errors == []
    assert GpuDemand.of(smaller).total == 2
    command = smaller["spec"]["template"]["spec"]["containers"][0]["command"]
    assert (command[2] == "2") == ("the launcher starts 2" in changes)


def test_the_first_version_without_any_gpu_counts_its_workers() -> None:
    smaller, changes = fit_object(first_version(gpus=16, gpusPerNode=8), GpuRoom((0,), cores=2))

    assert "ranks 16 -> 2" in changes
    assert {name: smaller["spec"].get(name) for name in ("gpus", "gpusPerNode", "replicas")} == {
        "gpus": None,
        "gpusPerNode": None,
        "replicas": 2,
    }
    assert read_mpijob(smaller).errors == []
    assert GpuDemand.of(smaller).total == 0


@pytest.mark.parametrize(
    ("shape", "room", "fits"),
    [
        (JobSize(2, 8, 8), REAL_2, JobSize(1, 2, 2)),
        (JobSize(4, 8, 8), SIMULATED, JobSize(2, 8, 8)),
        (JobSize(1, 16, 16), SIMULATED, JobSize(1, 8, 8)),
        (JobSize(8, 1, 4), GpuRoom((8, 4)), JobSize(3, 1, 4)),
        (JobSize(1, 4, 16), SIMULATED, JobSize(1, 2, 8)),
        (JobSize(1, 16, 4), REAL_2, JobSize(1, 8, 2)),
        (JobSize(2, 8, 8), GpuRoom((0,), cores=4), JobSize(2, 2, 0)),
        (JobSize(8, 1, 1), GpuRoom((0,), cores=4), JobSize(4, 1, 0)),
    ],
)
def test_largest_shape_that_fits(shape: JobSize, room: GpuRoom, fits: JobSize) -> None:
    assert fit_shape(shape, room) == fits


@pytest.mark.parametrize(
    ("command", "fitted"),
    [
        (["mpirun", "-np", "16", "train"], ["mpirun", "-np", "2", "train"]),
        (["mpirun", "-n", "16", "train", "-n", "16"], ["mpirun", "-n", "2", "train", "-n", "16"]),
        (["mpirun", "-np", "12", "train"], ["mpirun", "-np", "2", "train"]),
        (["mpirun", "-np", "1", "train"], ["mpirun", "-np", "1", "train"]),
        (["mpirun", "train", "--size", "16"], ["mpirun", "train", "--size", "16"]),
        (
            ["sh", "-c", "mpirun -np 16 train --batch 16"],
            ["sh", "-c", "mpirun -np 2 train --batch 16"],
        ),
        (["horovodrun", "-np", "16", "train"], ["horovodrun", "-np", "2", "train"]),
    ],
)
def test_the_launchers_count_follows(command: list[str], fitted: list[str]) -> None:
    smaller, _ = fit_object(mpijob(2, 8, command=command), REAL_2)

    assert command_of(smaller) == fitted


def test_what_was_changed_is_told_and_the_manifest_stays() -> None:
    job = mpijob(2, 8)
    before = copy.deepcopy(job)

    smaller, changes = fit_object(job, REAL_2)

    assert job == before
    assert changes == [
        "ranks 16 -> 2",
        "workers 2 -> 1",
        "slots of each 8 -> 2",
        "GPUs of each 8 -> 2",
        "the launcher starts 2",
    ]
    assert GpuDemand.of(smaller).shortage(REAL_2) == ""


def test_without_any_gpu_the_ranks_run_on_cores() -> None:
    smaller, changes = fit_object(mpijob(2, 8), GpuRoom((0,), cores=2))

    worker = smaller["spec"]["mpiReplicaSpecs"]["Worker"]
    assert worker["template"]["spec"]["containers"][0]["resources"] == {"limits": {}}
    assert "ranks 16 -> 2" in changes
    assert command_of(smaller)[2] == "2"


@pytest.mark.parametrize(
    ("launcher_policy", "given", "fitted"),
    [("AtStartup", 3, 2), ("WaitForWorkersReady", 2, 1), ("AtStartup", 1, 1)],
)
def test_a_gang_is_no_larger_than_the_job_that_is_left(launcher_policy: str, given: int, fitted: int) -> None:
    job = mpijob(2, 8)
    gang = {"minAvailable": given, "minResources": {"cpu": "64"}, "queue": "q"}
    job["spec"] |= {"launcherCreationPolicy": launcher_policy, "runPolicy": {"schedulingPolicy": gang}}

    smaller, changes = fit_object(job, REAL_2)

    assert smaller["spec"]["runPolicy"]["schedulingPolicy"] == {"minAvailable": fitted, "queue": "q"}
    assert (f"minAvailable {given} -> {fitted}" in changes) == (given != fitted)
    assert "minResources left out" in changes


def test_gpus_under_another_name_are_gpus_too() -> None:
    job = mpijob(2, 8)
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["resources"] = {"limits": {"aliyun.com/gpu": 8}}

    smaller, _ = fit_object(job, REAL_2)

    assert GpuDemand.of(job).shortage(REAL_2) == "it asks for 16 GPUs in 2 pods of 8, this machine has 2"
    fitted = smaller["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert fitted["resources"] == {"limits": {"aliyun.com/gpu": 2}}


@pytest.mark.parametrize(
    ("inits", "needed"),
    [
        ([(4, "")], 4),  # alone before the others
        ([(1, "")], 2),
        ([(1, "Always")], 3),  # a sidecar runs beside them
        ([(1, "Always"), (4, "")], 5),
    ],
)
def test_init_containers_count_as_a_scheduler_counts_them(inits: list[tuple[int, str]], needed: int) -> None:
    def asking(name: str, gpus: int, policy: str = "") -> dict[str, object]:
        resources = {"limits": {"nvidia.com/gpu": gpus}}
        return {"name": name, "image": "i", "resources": resources, "restartPolicy": policy}

    first = [asking(f"i-{index}", *one) for index, one in enumerate(inits)]
    spec = {"initContainers": first, "containers": [asking("m", 2)]}

    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "p"}}
    pod["spec"] = spec

    typed = msgspec.convert(pod, Pod)
    assert GpuDemand.of(pod).total == needed
    assert view_pod(pod, datetime.now(UTC), is_primary=True).gpus == needed
    assert PodView.from_pod(typed).request["nvidia.com/gpu"] == needed
    assert GpuRequest.of(typed).total == needed
    smaller, _ = fit_object(pod, GpuRoom((1 + sum(policy == "Always" for _, policy in inits),)))
    assert GpuDemand.of(smaller).total <= 2


def test_pods_and_jobs_are_made_to_fit_too() -> None:
    container = {"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 4}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}

    smaller, changes = fit_object(pod, REAL_2)

    assert GpuDemand.of(smaller).total == 2
    assert changes == ["GPUs of a pod 4 -> 2"]


def test_gpus_of_another_maker_are_asked_of_nodes_that_have_them() -> None:
    job = mpijob(2, 2)
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["resources"] = {"limits": {"amd.com/gpu": 2}}
    demand = GpuDemand.of(job)
    assert (demand.total, demand.resource, requested_gpus(job)) == (4, "amd.com/gpu", 4)

    nodes = [{"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "4"}}}]
    room = GpuRoom.of(nodes, demand.resource)
    assert "this machine has none" in demand.shortage(room)
    smaller, _ = fit_object(job, room)
    assert GpuDemand.of(smaller).total == 0


def test_how_many_to_simulate() -> None:
    assert nodes_for(GpuDemand.of(mpijob(2, 8))) == (8, 2)
    assert nodes_for(GpuDemand.of(mpijob(1, 16))) == (16, 1)
    assert nodes_for(GpuDemand.of(mpijob(3, 5))) == (8, 3)
    assert nodes_for(GpuDemand(pods=1, each=8, beside=8)) == (8, 2)


@pytest.mark.parametrize(
    ("options", "is_local", "message"),
    [
        (GpuOptions(fit=True), False, "--fit belongs to the one-machine cluster"),
        (GpuOptions(simulate=8), False, "--simulate-gpus belongs to the one-machine cluster"),
        (GpuOptions(model="v100-dgx1"), True, "none are asked for"),
        (GpuOptions(simulate=100), True, "1 to 64"),
        (GpuOptions(per_rank=1), True, "--gpus-per-rank belongs to programs"),
        (GpuOptions(per_rank=0), True, "--gpus-per-rank must be at least 1"),
    ],
)
def test_options_that_cannot_be_used(options: GpuOptions, is_local: bool, message: str) -> None:
    with pytest.raises(UserError, match=message):
        options.check(is_local=is_local, is_program=False)


def facts(**fields: Any) -> ClusterFacts:
    known = {"name": "default", "id": "1", "port": 1, "subnet": "", "bridge": "", "isolation": "auto"}
    return ClusterFacts(**known, nodes=1, created="", **fields)


def test_a_cluster_that_is_up_keeps_its_gpus() -> None:
    running = facts(simulated_gpus=8, gpu_model="v100-dgx1")

    refuse_another(running, Simulation(8, "v100-dgx1"))
    refuse_another(running, Simulation(8))
    with pytest.raises(UserError, match=r"up with 8 simulated GPUs on each node \(v100-dgx1\), 4 simulated"):
        refuse_another(running, Simulation(4))
    with pytest.raises(UserError, match="up with the machine's own GPUs, 4 simulated GPUs on each node are"):
        refuse_another(facts(), Simulation(4))


@pytest.mark.parametrize(("rank", "seen"), [(0, "a,b"), (1, "c,d"), (2, "e,f")])
def test_every_rank_sees_its_share_by_its_place_in_the_pod(rank: int, seen: str) -> None:
    mpi = MpiInstallation("openmpi", "5.0.0", Path("/bin"), Path("/lib"), Path("/"))
    environment = {
        "PATH": os.environ["PATH"],
        "CUDA_VISIBLE_DEVICES": "a,b,c,d,e,f",
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
    }

    line = ["sh", "-c", rank_script(mpi, 2), "rank", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    process = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)

    assert process.stdout.strip() == seen


def test_words_of_tables() -> None:
    assert gpu_cell(8, "simulated") == "8 simulated"
    assert gpu_cell(8, "real") == "8"
    assert gpu_cell(0, "simulated") == "0"
    assert gpu_cell(None, "simulated") == "N/A"


def test_kind_is_what_the_nodes_say() -> None:
    def node(source: str) -> dict[str, Any]:
        return {"metadata": {"labels": {"gangline.dev/gpu-source": source} if source else {}}}

    assert kind_of_nodes([node("nvml"), node("")]) == "real"
    assert kind_of_nodes([node("nvml"), node("simulated")]) == "simulated"
    assert kind_of_nodes([node("")]) == ""
