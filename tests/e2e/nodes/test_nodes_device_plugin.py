"""The device plugin beside a real kubelet; its GPUs are simulated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("grpc", reason="needs grpcio")

from gangline.api.resources import NODES, PODS
from gangline.devices.inventory import NODE_FILE, RESOURCE, DeviceInventory, with_unhealthy
from gangline.devices.simulated import simulate

REGISTERED = "Registered device plugin with Kubelet"


class RunningPlugin:
    """`gangline device-plugin` among the processes of a node."""

    def __init__(self, node: Any, log: Path) -> None:
        self._folder, self._log = node.plugins, log
        self.tell(simulate(node.name, 4, "v100-dgx1"))
        program = [sys.executable, "-m", "gangline", "device-plugin"]
        # nsenter's child would outlive it, and its GPUs the test.
        words = node.sandbox.enter("setpriv", "--pdeathsig", "TERM", *program)
        with log.open("w") as stream:
            self.process = subprocess.Popen(words, stderr=stream)

    def tell(self, inventory: DeviceInventory) -> None:
        """Say which GPUs the node has."""
        draft = self._folder / "draft"
        draft.write_bytes(msgspec.json.encode(inventory))
        draft.replace(self._folder / NODE_FILE)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def plugin(nodes: Any, tmp_path: Path) -> Iterator[RunningPlugin]:
    """Return the plugin of the first node."""
    running = RunningPlugin(nodes.node(nodes.names[0]), tmp_path / "plugin.log")
    try:
        yield running
    finally:
        running.end()


def asking(name: str, node: str, image: str, count: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"; sleep 600'],
        "resources": {"limits": {RESOURCE: count}},
    }
    spec = {"containers": [container], "nodeName": node, "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def test_gpus_by_the_wires_on_a_kubelet_that_starts_anew(
    nodes: Any, jobs: Any, image: Callable[[str], str], plugin: RunningPlugin
) -> None:
    name = nodes.names[0]
    loaded = image("openmpi")

    async def amounts(capacity: str, allocatable: str) -> None:
        async def found() -> bool:
            status = (await jobs.client.get(NODES, name))["status"]
            return (status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)) == (
                capacity,
                allocatable,
            )

        await jobs.until(found, f"node with {allocatable} of {capacity} GPUs; the plugin said\n{plugin.log}")

    async def given(pod: str, count: int) -> str:
        obj = asking(pod, name, loaded, count)
        obj["metadata"]["namespace"] = jobs.namespace
        await jobs.client.create(PODS, obj)

        async def said() -> str:
            found = await jobs.get(PODS, pod)
            return (await jobs.log(pod)) if found and found["status"]["phase"] == "Running" else ""

        return str(await jobs.until(said, f"log of {pod}"))

    def both(*indices: int) -> str:
        ids = ",".join(f"GPU-simulated-{name}-{index}" for index in indices)
        return f"{ids} {ids}\n"

    async def registered() -> bool:  # the node may still have what a plugin before had
        return REGISTERED in plugin.log

    await jobs.until(registered, f"registration; the plugin said\n{plugin.log}")
    await amounts("4", "4")
    # Two NVLinks join 0 with 3 and 1 with 2, one all others of the first four GPUs of a DGX-1.
    assert await given("two", 2) == both(0, 3)

    plugin.tell(with_unhealthy(simulate(name, 4, "v100-dgx1"), frozenset({1})))
    await amounts("4", "3")
    plugin.tell(simulate(name, 4, "v100-dgx1"))
    await amounts("4", "4")

    nodes.node(name).restart_kubelet()

    async def registered_again() -> bool:
        return plugin.log.count(REGISTERED) == 2

    await jobs.until(registered_again, "second registration")
    await amounts("4", "4")
    # Those of the pod that ran on are its own still.
    assert await given("others", 2) == both(1, 2)
    assert "/var/lib/kubelet/device-plugins/kubelet.sock created, restarting." in plugin.log
