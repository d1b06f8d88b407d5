"""Beside a maker's own device plugin, for which a stand-in registers on a real kubelet: its GPUs are names.

Our scheduler chooses nodes. Which GPUs a pod gets is the plugin's and the kubelet's, and every view says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs grpcio")

from stock_plugin import stock_plugin

from gangline.api.resources import JOBS, NODES, PODS
from gangline.devices.inventory import TOPOLOGY_ANNOTATION
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.scheduler.service import SchedulerOptions, SchedulerService
from gangline.workloads.gpu_source import SOURCE_LABEL

IDS = [f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in range(4)]


def gang(image: str, namespace: str, resource: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", 'echo "$NVIDIA_VISIBLE_DEVICES"; sleep 600'],
        "resources": {"limits": {resource: "2"}},
    }
    template = {
        "metadata": {"annotations": {"gangline.dev/gang-size": "2"}},
        "spec": {
            "schedulerName": "gangline-scheduler",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": template}
    metadata = {"name": "pair", "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"])
async def test_nodes_are_chosen_here_and_gpus_by_the_plugin_which_is_said(
    nodes: Any,
    jobs: Any,
    image: Callable[[str], str],
    tmp_path: Path,
    kubectl: Callable[..., str],
    resource: str,
) -> None:
    loaded, name = image("openmpi"), nodes.names[1]
    environment = os.environ | {"KUBECONFIG": str(nodes.kubeconfig), "GANGLINE_HOME": str(tmp_path / "home")}

    async def gangline(*words: str) -> str:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gangline", *words, "--context", "tests"),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, _ = await running.communicate()
        return out.decode()

    async def has(amount: str) -> bool:
        found = (await jobs.client.get(NODES, name))["status"]["allocatable"].get(resource, "0")
        return bool(found == amount)

    async def gpus_of_pods() -> list[set[str]]:
        pods = (await jobs.client.list(PODS, jobs.namespace)).items
        if len(pods) < 2 or any(pod["status"]["phase"] != "Running" for pod in pods):
            return []
        logs = [await jobs.log(pod["metadata"]["name"]) for pod in pods]
        return [set(log.split()[0].split(",")) for log in logs] if all(logs) else []

    # Our own plugin may have been on this node.
    notes = {"annotations": {TOPOLOGY_ANNOTATION: None}, "labels": {SOURCE_LABEL: None}}
    await jobs.client.patch(NODES, name, {"metadata": notes})
    async with (
        stock_plugin(nodes.node(name).plugins, resource, IDS) as plugin,
        Client(load_kubeconfig(nodes.kubeconfig)) as client,
    ):
        await jobs.until(lambda: has("4"), f"4 GPUs of {name}")
        scheduler = asyncio.create_task(SchedulerService(client, SchedulerOptions()).run())
        try:
            await jobs.client.create(JOBS, gang(loaded, jobs.namespace, resource))
            one, other = await jobs.until(gpus_of_pods, "GPUs of the gang")
            pods = (await jobs.client.list(PODS, jobs.namespace)).items
            explained = await gangline("explain", "pair", "--namespace", jobs.namespace, "--placement")
            (row,) = json.loads(await gangline("top", "node", name, "-o", "json"))
            described = await asyncio.to_thread(kubectl, "-n", jobs.namespace, "describe", "pods")
            details = await gangline("top", "node", name, "--details")
        finally:
            await jobs.client.delete(JOBS, "pair", jobs.namespace)
            scheduler.cancel()
            await asyncio.gather(scheduler, return_exceptions=True)

    assert {pod["spec"]["nodeName"] for pod in pods} == {name}
    assert one | other == set(IDS)
    assert not one & other
    assert {frozenset(ids) for ids in plugin.allocated} == {frozenset(one), frozenset(other)}
    assert not any("gangline.dev/gpus" in (pod["metadata"].get("annotations") or {}) for pod in pods)
    assert f"4 GPUs; which ones, or their links, is known to the device plugin of {name} alone" in " ".join(
        explained.split()
    )
    assert (row["resources"][resource], row["allocatedGPUs"], row["idsChosenBy"]) == (4, 4, "device plugin")
    assert "which, its own device plugin chooses and does not tell" in details
    assert details.count("by the device plugin") == 2
    assert f"4 {resource}" in details
    assert described.count(f"which {resource} it gets there, the device plugin of the node chooses") == 2
