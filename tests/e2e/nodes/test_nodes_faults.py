"""What befalls a cluster under a running gang: its parts are restarted, its nodes drained or lost.

The cluster is this file's own, for a node of it is lost.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from mpi_images import image_name, mpi_image
from node import missing
from nodes import Nodes

from gangline.api.crds import crds
from gangline.api.resources import NODES, PODS

Build = Callable[..., dict[str, Any]]
LAST = ["mpirun", "--allow-run-as-root", "-n", "2", "sh", "-c"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    if reason := missing():
        pytest.skip(reason)
    with Nodes(crds=crds(), images=[mpi_image("openmpi")]) as cluster:
        yield cluster


@pytest.fixture
async def gang(jobs: Any, make_job: Build) -> AsyncIterator[Callable[[str], Any]]:
    """Return what starts a gang of two that runs a line of shell, and waits until it runs."""

    async def start(line: str) -> set[str]:
        job = make_job(image_name("openmpi"), command=[*LAST, line])
        template = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
        template["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": "pi"}},
            }
        ]
        await jobs.submit(job)
        await jobs.condition("Running")
        return {pod["metadata"]["uid"] for pod in await jobs.pods()}

    yield start
    for node in (await jobs.client.list(NODES)).items:
        if node["spec"].get("unschedulable"):
            await jobs.client.patch(NODES, node["metadata"]["name"], {"spec": {"unschedulable": None}})


async def to_go(jobs: Any, node: str) -> set[str]:
    """Return the pods that have to be made anew when a node goes: all, for the launcher loses a worker.

    Where the launcher goes itself, its successor starts the ranks of a worker that stays.
    """
    uids = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in await jobs.pods()}
    (launcher,) = await jobs.pods("launcher")
    stays = launcher["spec"]["nodeName"] != node
    return {uid for uid, place in uids.items() if stays or place == node}


async def runs_on(jobs: Any, node: str, gone: set[str]) -> None:
    """Wait until a gang without these pods runs on a node."""

    async def found() -> bool:
        pods = await jobs.pods()
        is_new = not gone & {pod["metadata"]["uid"] for pod in pods}
        places = [(pod["status"]["phase"], pod["spec"].get("nodeName")) for pod in pods]
        return is_new and places == [("Running", node)] * 3

    await jobs.until(found, f"gang without {gone} on {node}")


@pytest.mark.parametrize("part", ["kubelets", "API server", "etcd"])
async def test_a_gang_goes_on_while_a_part_of_the_cluster_starts_again(
    jobs: Any, nodes: Nodes, gang: Callable[[str], Any], make_job: Build, part: str
) -> None:
    before = await gang("sleep 12; echo rank $OMPI_COMM_WORLD_RANK is through")
    plane = nodes.plane
    assert plane

    # In this thread: the kernel ends what another one has started together with it.
    if part == "kubelets":
        for name in nodes.names:
            nodes.node(name).restart_kubelet()
    elif part == "etcd":
        plane.restart_etcd()
    else:
        plane.restart_apiserver()

    await jobs.condition("Succeeded")
    log = await jobs.launcher_log()
    assert "rank 0 is through" in log and "rank 1 is through" in log
    (launcher,) = await jobs.pods("launcher")
    assert launcher["metadata"]["uid"] in before
    assert not any(one["restartCount"] for one in launcher["status"]["containerStatuses"])
    await jobs.submit(make_job(image_name("openmpi"), name="after"))
    await jobs.condition("Succeeded", "after")


async def test_a_drain_moves_the_gang(jobs: Any, nodes: Nodes, gang: Callable[[str], Any]) -> None:
    await gang("sleep 600")
    first, second = nodes.names
    gone = await to_go(jobs, first)

    done = await asyncio.to_thread(
        subprocess.run,
        ["kubectl", "drain", first, "--force", "--delete-emptydir-data", "--timeout=60s"],
        env=os.environ | {"KUBECONFIG": str(nodes.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    await runs_on(jobs, second, gone)


async def test_a_node_that_is_lost_and_taken_out_has_the_gang_start_again(
    jobs: Any, nodes: Nodes, gang: Callable[[str], Any]
) -> None:
    """As a cloud does: the machine ends, and its Node object is deleted."""
    await gang("sleep 600")
    first, second = nodes.names
    gone = await to_go(jobs, first)
    assert {pod["spec"]["nodeName"] for pod in await jobs.pods("worker")} == {first, second}

    nodes.lose(first)
    await jobs.client.delete(NODES, first)

    await runs_on(jobs, second, gone)
    left = (await jobs.client.list(PODS, jobs.namespace)).items
    assert {pod["spec"].get("nodeName") for pod in left} == {second}
