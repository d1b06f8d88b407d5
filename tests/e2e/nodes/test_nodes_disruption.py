"""What a cluster does to a worker of a running gang on real nodes: the gang starts again, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangline.api.resources import MPIJOBS, PODS

Build = Callable[..., dict[str, Any]]
Image = Callable[[str], str]


async def test_an_evicted_worker_has_the_gang_start_again(jobs: Any, image: Image, make_job: Build) -> None:
    line = ["mpirun", "--allow-run-as-root", "-n", "2", "sleep", "300"]
    await jobs.submit(make_job(image("openmpi"), command=line))
    await jobs.condition("Running")
    before = {pod["metadata"]["uid"] for pod in await jobs.pods()}
    name = next(
        pod["metadata"]["name"] for pod in await jobs.pods("worker") if pod["metadata"]["name"].endswith("-1")
    )

    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await jobs.client.create_subresource(PODS, name, "eviction", eviction, jobs.namespace)

    async def runs_again() -> bool:
        status = (await jobs.client.get(MPIJOBS, "pi", jobs.namespace))["status"]
        pods = await jobs.pods()
        is_new = not before & {pod["metadata"]["uid"] for pod in pods}
        runs = [pod["status"]["phase"] for pod in pods] == ["Running"] * 3
        holds = {one["type"] for one in status["conditions"] if one["status"] == "True"}
        return status.get("restarts") == 1 and is_new and runs and "Running" in holds

    await jobs.until(runs_again, "gang that runs again, all of it new")
