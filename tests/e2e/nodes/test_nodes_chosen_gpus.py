"""Pods on a real kubelet have the GPUs that our scheduler chose, and annotations are true; simulated GPUs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs grpcio")

from gangline.api.resources import NODES, PODS
from gangline.devices.inventory import RESOURCE, TOPOLOGY_ANNOTATION
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.scheduler.service import SchedulerOptions, SchedulerService
from gangline.workloads.gpu_source import SOURCE_LABEL

SCHEDULER = "gangline-scheduler"
PODS_MAX = 12


@pytest.fixture
def plugin(nodes: Any, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Run the plugin of the first node with a way to the cluster; return what reads its log."""
    node, log = nodes.node(nodes.names[0]), tmp_path / "plugin.log"
    options = [f"--folder={node.plugins}", f"--kubelet-folder={node.kubelet_folder}"]
    options += [f"--kubeconfig={nodes.kubeconfig}", f"--node={node.name}"]
    options += ["--simulate-gpus=4", "--gpu-model=v100-dgx1"]
    program = [sys.executable, "-m", "gangline", "device-plugin", *options]
    with log.open("w") as stream:
        words = node.sandbox.enter("setpriv", "--pdeathsig", "TERM", *program)
        running = subprocess.Popen(words, stderr=stream)
    try:
        yield log.read_text
    finally:
        running.terminate()
        running.wait(30)


def asking(name: str, namespace: str, image: str, count: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", 'echo "$NVIDIA_VISIBLE_DEVICES"; sleep 600'],
        "resources": {"limits": {RESOURCE: str(count)}},
    }
    spec = {"containers": [container], "schedulerName": SCHEDULER, "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_pods_that_race_have_what_was_chosen_or_are_told_what_they_got(
    nodes: Any, jobs: Any, image: Callable[[str], str], plugin: Callable[[], str]
) -> None:
    loaded, name = image("openmpi"), nodes.names[0]

    async def published() -> bool:
        node = await jobs.client.get(NODES, name)
        notes = node["metadata"].get("annotations") or {}
        return "gangline.dev/gpu-topology" in notes and node["status"]["allocatable"].get(RESOURCE) == "4"

    async def known(pod: str) -> tuple[set[str], set[str]] | None:
        """Return what a running pod has and what its annotation says, once these are the same."""
        found = await jobs.get(PODS, pod)
        if not found or found["status"]["phase"] != "Running" or not (log := await jobs.log(pod)):
            return None
        said = set(json.loads(found["metadata"]["annotations"]["gangline.dev/gpus"])["main"])
        has = set(log.strip().split(","))
        return (has, said) if has == said else None

    await jobs.until(published, f"GPUs and links of {name}; the plugin said\n{plugin()}")
    async with Client(load_kubeconfig(nodes.kubeconfig)) as client, asyncio.TaskGroup() as services:
        scheduler = services.create_task(SchedulerService(client, SchedulerOptions()).run())
        await jobs.client.create(PODS, asking("pair", jobs.namespace, loaded, 2))
        has, _ = await jobs.until(lambda: known("pair"), f"GPUs of pair; the plugin said\n{plugin()}")
        # Two NVLinks join 0 with 3, and one 0 with 1 and 2.
        assert has == {f"GPU-simulated-{name}-{index}" for index in (0, 3)}
        await jobs.client.delete(PODS, "pair", jobs.namespace)

        waiting = [f"one-{index}" for index in range(PODS_MAX)]
        await asyncio.gather(
            *(jobs.client.create(PODS, asking(pod, jobs.namespace, loaded, 1)) for pod in waiting)
        )
        ended = 0
        while ended < PODS_MAX:
            listed = (await jobs.client.list(PODS, jobs.namespace)).items
            here = [pod["metadata"]["name"] for pod in listed if pod["metadata"]["name"] in waiting]
            held: dict[str, set[str]] = {}
            for pod in here:
                if (found := await known(pod)) is not None:
                    held[pod] = found[0]
            assert sum(map(len, held.values())) == len(set().union(*held.values())), held
            for pod in held:
                await jobs.client.delete(PODS, pod, jobs.namespace)
                waiting.remove(pod)
                ended += 1
            await asyncio.sleep(0.1)
        scheduler.cancel()
    notes = {"annotations": {TOPOLOGY_ANNOTATION: None}, "labels": {SOURCE_LABEL: None}}
    await jobs.client.patch(NODES, name, {"metadata": notes})
