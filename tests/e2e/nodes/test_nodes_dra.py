"""GPUs by resource claims: our driver beside a real kubelet, our scheduler allocates; they are simulated."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from node import own_containerd

pytest.importorskip("grpc", reason="needs grpcio")

from gangline.api.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.scheduler.service import SchedulerOptions, SchedulerService
from gangline.workloads.device_class import DEVICE_CLASS, DRIVER

TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
SCHEDULER = "gangline-scheduler"


class RunningDriver:
    """`gangline device-plugin --dra` among the processes of a node."""

    def __init__(self, nodes: Any, log: Path) -> None:
        self.node, self._log = nodes.node(nodes.names[0]), log
        options = [
            "--dra",
            f"--kubelet-folder={self.node.kubelet_folder}",
            f"--kubeconfig={nodes.kubeconfig}",
        ]
        options += [f"--node={self.node.name}", "--simulate-gpus=4", "--gpu-model=v100-dgx1"]
        program = [sys.executable, "-m", "gangline", "device-plugin", *options]
        # nsenter's child would outlive it, and its GPUs the test.
        words = self.node.sandbox.enter("setpriv", "--pdeathsig", "TERM", *program)
        with log.open("w") as stream:
            self.process = subprocess.Popen(words, stderr=stream)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def driver(nodes: Any, tmp_path: Path) -> Iterator[RunningDriver]:
    """Return the driver of the first node."""
    running = RunningDriver(nodes, tmp_path / "driver.log")
    try:
        yield running
    finally:
        running.end()


@contextlib.asynccontextmanager
async def scheduling(nodes: Any) -> AsyncIterator[None]:
    async with Client(load_kubeconfig(nodes.kubeconfig)) as client:
        running = asyncio.create_task(SchedulerService(client, SchedulerOptions()).run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def template(count: int) -> dict[str, Any]:
    request = {"name": "gpus", "exactly": {"deviceClassName": DRIVER, "count": count}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": f"gpus-{count}"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def asking(name: str, image: str, count: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"; sleep 600'],
        "resources": {"claims": [{"name": "mine"}]},
    }
    spec = {
        "containers": [container],
        "schedulerName": SCHEDULER,
        "terminationGracePeriodSeconds": 0,
        "resourceClaims": [{"name": "mine", "resourceClaimTemplateName": f"gpus-{count}"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.skipif(own_containerd() is None, reason="Debian's containerd knows no CDI: make control-plane")
async def test_a_claim_is_allocated_by_the_wires_and_prepared_by_the_kubelet(
    nodes: Any, jobs: Any, image: Callable[[str], str], driver: RunningDriver
) -> None:
    loaded, name = image("openmpi"), nodes.names[0]

    async def create(resource: Resource, obj: dict[str, Any]) -> None:
        obj["metadata"]["namespace"] = jobs.namespace
        await jobs.client.create(resource, obj)

    async def said(pod: str) -> str:
        found = await jobs.get(PODS, pod)
        return (await jobs.log(pod)) if found and found["status"]["phase"] == "Running" else ""

    def both(*indices: int) -> str:
        ids = ",".join(f"GPU-simulated-{name}-{index}" for index in indices)
        return f"{ids} {ids}\n"

    async def idle() -> bool:  # pods of tests before may still be ending, with GPUs
        pods = (await jobs.client.list(PODS)).items
        return not any("nvidia.com/gpu" in str(pod["spec"]) for pod in pods)

    await jobs.until(idle, "end of other pods with GPUs")
    await jobs.client.create(DEVICE_CLASSES, DEVICE_CLASS)
    try:
        async with scheduling(nodes):
            await create(TEMPLATES, template(2))
            await create(TEMPLATES, template(3))
            # Two NVLinks join 0 with 3 and 1 with 2, one all others of the first four GPUs of a DGX-1.
            await create(PODS, asking("two", loaded, 2))
            assert await jobs.until(
                lambda: said("two"), f"log of two; the driver said\n{driver.log}"
            ) == both(0, 3)
            (claim,) = (await jobs.client.list(RESOURCE_CLAIMS, jobs.namespace)).items
            held = claim["status"]["allocation"]["devices"]["results"]
            assert [(one["pool"], one["device"]) for one in held] == [(name, "gpu-0"), (name, "gpu-3")]
            assert [one["name"] for one in claim["status"]["reservedFor"]] == ["two"]

            await create(PODS, asking("three", loaded, 3))

            async def why() -> str:
                conditions = ((await jobs.get(PODS, "three")) or {}).get("status", {}).get("conditions", [])
                return next((one["message"] for one in conditions if "nvidia.com/gpu" in one["message"]), "")

            assert "1 Insufficient simulated nvidia.com/gpu" in await jobs.until(why, "reason of three")
            await jobs.client.delete(PODS, "two", jobs.namespace)
            assert len((await jobs.until(lambda: said("three"), "log of three")).split(",")) == 5
            assert list(driver.node.cdi.glob(f"{DRIVER}-claim-*.json"))
            await jobs.client.delete(PODS, "three", jobs.namespace)

            async def unprepared() -> bool:
                return not list(driver.node.cdi.glob(f"{DRIVER}-claim-*.json"))

            await jobs.until(unprepared, "unprepared claim")
    finally:
        await jobs.client.delete(DEVICE_CLASSES, DRIVER)
        for one in (await jobs.client.list(RESOURCE_SLICES, None)).items:
            await jobs.client.delete(RESOURCE_SLICES, one["metadata"]["name"])
