"""The MPI operator's end-to-end cases, restated: jobs of three MPIs in real containers end as they should.

In scope: everything between an MPIJob and its end, with every program real. Out of scope: placing gangs; the
test plays the gang scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from operator_under_test import COMMAND, changed

from gangline.api.resources import (
    JOBS,
    MPIJOBS,
    PODS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)

Build = Callable[..., dict[str, Any]]
Image = Callable[[str], str]
ROLES = pytest.mark.parametrize("as_user", [False, True], ids=["root", "user"])


async def succeeds(jobs: Any, workers: int = 2) -> str:
    """Wait until the job has succeeded, and return what its launcher printed."""
    await jobs.condition("Succeeded")
    status = (await jobs.client.get(MPIJOBS, "pi", jobs.namespace))["status"]
    assert status["completionTime"]
    assert status["replicaStatuses"]["Launcher"]["succeeded"] == 1
    log = str(await jobs.launcher_log())
    assert re.search(r"pi is approximately 3\.1", log)
    assert f"Workers: {workers} on " in log
    return log


@ROLES
async def test_open_mpi(jobs: Any, image: Image, make_job: Build, as_user: bool) -> None:
    await jobs.submit(make_job(image("openmpi"), as_user=as_user))
    await succeeds(jobs)

    async def only_the_launcher_is_left() -> bool:
        return not await jobs.pods("worker") and bool(await jobs.pods("launcher"))

    await jobs.until(only_the_launcher_is_left, "end of the workers")


@ROLES
@pytest.mark.parametrize(("mpi", "implementation"), [("intel", "Intel"), ("mpich", "MPICH")])
async def test_intel_mpi_and_mpich(
    jobs: Any, image: Image, make_job: Build, mpi: str, implementation: str, as_user: bool
) -> None:
    job = make_job(image(mpi), as_user=as_user, args=True, probe=True, mpiImplementation=implementation)
    await jobs.submit(job)

    log = await succeeds(jobs)

    assert "Workers: 2 on 2 hosts" in log


async def test_a_command_that_mpirun_refuses_fails_the_job(jobs: Any, image: Image, make_job: Build) -> None:
    as_root_without_leave = ["mpirun", "-n", "2", "python3", "/opt/pi.py"]
    policy = {"cleanPodPolicy": "Running", "backoffLimit": 1}
    await jobs.submit(make_job(image("openmpi"), command=as_root_without_leave, runPolicy=policy))

    failed = await jobs.condition("Failed")

    assert failed["reason"].startswith("BackoffLimitExceeded")


async def test_a_job_that_is_created_suspended_runs_when_it_is_resumed(
    jobs: Any, image: Image, make_job: Build
) -> None:
    policy = {"cleanPodPolicy": "Running", "suspend": True}
    await jobs.submit(make_job(image("openmpi"), runPolicy=policy))
    await jobs.condition("Suspended")
    await jobs.until(lambda: jobs.get(JOBS, "pi-launcher"), "suspended launcher")
    assert await jobs.pods() == []

    await jobs.edit({"spec": {"runPolicy": {"suspend": False}}})

    await succeeds(jobs)


async def test_pods_on_the_network_of_their_node(jobs: Any, image: Image, make_job: Build) -> None:
    job = make_job(image("openmpi"), workers=1)
    for role in job["spec"]["mpiReplicaSpecs"].values():
        role["template"]["spec"]["hostNetwork"] = True
    await jobs.submit(job)

    await succeeds(jobs, workers=1)


async def test_a_job_that_another_controller_manages_is_left_alone(
    jobs: Any, image: Image, make_job: Build
) -> None:
    other = {"managedBy": "kueue.x-k8s.io/multikueue"}
    await jobs.submit(make_job(image("openmpi"), name="theirs", runPolicy=other))
    await jobs.submit(make_job(image("openmpi")))  # ours, created later, is the proof that it was looked at
    await succeeds(jobs)

    assert await jobs.pods(name="theirs") == []
    assert await jobs.get(JOBS, "theirs-launcher") is None
    assert await jobs.get(SERVICES, "theirs") is None
    assert "status" not in await jobs.client.get(MPIJOBS, "theirs", jobs.namespace)


async def test_a_job_that_names_us_as_its_manager(jobs: Any, image: Image, make_job: Build) -> None:
    policy = {"cleanPodPolicy": "Running", "managedBy": "kubeflow.org/mpi-operator"}
    await jobs.submit(make_job(image("openmpi"), runPolicy=policy))

    await succeeds(jobs)


@pytest.mark.parametrize("jobs", [["--cluster-domain", "cluster.local"]], indirect=True)
async def test_a_cluster_domain_and_a_launcher_with_ranks(jobs: Any, image: Image, make_job: Build) -> None:
    ranks = 2 if COMMAND else 3  # without the host list there may be no slot for a third
    line = f"/usr/sbin/sshd && exec mpirun --allow-run-as-root -n {ranks} python3 /opt/pi.py"
    await jobs.submit(make_job(image("openmpi"), command=["sh", "-c", line], runLauncherAsWorker=True))

    await succeeds(jobs, workers=ranks)


GANGS = [
    (["--gang-scheduling", "scheduler-plugins-scheduler"], SCHEDULER_PLUGINS_POD_GROUPS),
    (["--gang-scheduling", "volcano"], VOLCANO_POD_GROUPS),
]


@pytest.mark.parametrize(("jobs", "groups"), GANGS, indirect=["jobs"], ids=["scheduler-plugins", "volcano"])
async def test_a_gang_that_cannot_be_placed_waits_until_it_asks_for_less(
    jobs: Any, image: Image, make_job: Build, groups: Resource
) -> None:
    much = {"cpu": "100k", "memory": "100000Gi"}
    policy = {"cleanPodPolicy": "Running", "schedulingPolicy": {"minResources": much}}
    await jobs.submit(make_job(image("openmpi"), runPolicy=policy))

    async def three_pods() -> Any:
        pods = await jobs.pods()
        return pods if len(pods) == 3 else None

    pods = await jobs.until(three_pods, "3 pods")
    group = await jobs.until(lambda: jobs.get(groups, "pi"), "PodGroup")
    assert group["spec"]["minResources"] == much
    assert {pod["status"]["phase"] for pod in pods} == {"Pending"}
    assert not any(pod["spec"].get("nodeName") for pod in pods)

    await jobs.edit({"spec": {"runPolicy": {"schedulingPolicy": {"minResources": None}}}})

    async def asks_less() -> bool:
        group = await jobs.get(groups, "pi")
        return bool(group) and group["spec"].get("minResources") != much

    await jobs.until(asks_less, "PodGroup without the old minimum")
    for index, pod in enumerate(pods):  # as the gang scheduler would
        await bind(jobs, pod, jobs.nodes.names[index % 2])
    await jobs.condition("Running")


async def bind(jobs: Any, pod: dict[str, Any], node: str) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = PODS.path(jobs.namespace, pod["metadata"]["name"], "binding")
    await jobs.client.request("POST", path, body=binding)


# What upstream's own cases cannot notice.


@changed("the hosts are announced to Open MPI 5 as well")
async def test_open_mpi_5_runs_a_rank_in_each_worker(jobs: Any, image: Image, make_job: Build) -> None:
    await jobs.submit(make_job(image("openmpi")))

    log = await succeeds(jobs)

    hosts = dict(re.findall(r"Rank (\d) on host (\S+)", log))
    assert hosts == {"0": "pi-worker-0", "1": "pi-worker-1"}


@changed("ranks are bound to no core")
async def test_ranks_of_several_pods_may_use_all_cores(jobs: Any, image: Image, make_job: Build) -> None:
    await jobs.submit(make_job(image("openmpi"), workers=3))

    log = await succeeds(jobs, workers=3)

    cores = re.findall(r"cores (\S+)", log)
    assert len(cores) == 3
    assert all(len(one.split(",")) > 1 for one in cores) or cores == ["0"] * 3  # a machine of one core


@changed("ssh waits until the names of hosts are known")
async def test_a_launcher_that_may_not_fail_once_finds_its_workers(
    jobs: Any, image: Image, make_job: Build
) -> None:
    policy = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    job = make_job(image("openmpi"), runPolicy=policy)
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"
    await jobs.submit(job)

    await succeeds(jobs)


@changed("Open MPI 5 gets no arguments for ssh, which it would cut")
async def test_workers_that_start_other_workers(jobs: Any, image: Image, make_job: Build) -> None:
    """As from 65 hosts on: the launcher starts one host, that one the next, and so on."""
    command = ["mpirun", "--allow-run-as-root", "--prtemca", "routed_radix", "1", "-n", "3"]
    job = make_job(image("openmpi"), workers=3, command=[*command, "python3", "/opt/pi.py"])
    await jobs.submit(job)

    await succeeds(jobs, workers=3)


@changed("a worker that ends badly fails the job and is named")
async def test_a_worker_that_fails_is_named(jobs: Any, image: Image, make_job: Build) -> None:
    job = make_job(image("openmpi"), command=["sleep", "600"])
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["command"] = ["sh", "-c", "test $(hostname) = pi-worker-0 || exit 3; exec sleep 600"]
    await jobs.submit(job)

    failed = await jobs.condition("Failed")

    assert failed["reason"] == "MPIJobWorkerFailed"
    assert "pi-worker-1" in failed["message"]
    assert "3" in failed["message"]


async def test_a_launcher_that_waits_starts_after_its_workers_are_ready(
    jobs: Any, image: Image, make_job: Build
) -> None:
    job = make_job(image("openmpi"), probe=True, launcherCreationPolicy="WaitForWorkersReady")
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
    await jobs.submit(job)
    await succeeds(jobs)

    launcher = await jobs.get(JOBS, "pi-launcher")
    assert launcher is not None
    assert launcher["status"].get("failed", 0) == 0
    starts = [worker["status"]["startTime"] for worker in await jobs.pods("worker")]
    assert len(starts) == 2
    assert max(starts) <= launcher["metadata"]["creationTimestamp"]


async def test_a_job_grows_while_it_runs(jobs: Any, image: Image, make_job: Build) -> None:
    script = (
        "until [ $(/etc/mpi/discover_hosts.sh | wc -l) = 3 ]; do sleep 0.2; done; /etc/mpi/discover_hosts.sh"
    )
    policy = {"cleanPodPolicy": "None"}
    await jobs.submit(make_job(image("openmpi"), command=["sh", "-c", script], runPolicy=policy))
    await jobs.condition("Running")

    await jobs.edit({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}})

    await jobs.condition("Succeeded")
    hosts = (await jobs.launcher_log()).split()
    assert [host.split(".")[0] for host in hosts] == ["pi-worker-0", "pi-worker-1", "pi-worker-2"]
