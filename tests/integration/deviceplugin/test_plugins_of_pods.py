"""The agent's part: plugins register with a program of its own, which runs while a pod with one is there."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.api.volumes import HostPathVolume
from gangline.cluster.node.device_plugins import DevicePlugins
from gangline.devices.inventory import NODE_FILE, DeviceInventory, with_unhealthy
from gangline.devices.simulated import simulate
from gangline.errors import ClusterError

REGISTERED = "Registered device plugin with Kubelet"


class Log:
    def info(self, *words: object, **facts: object) -> None: ...

    warning = info


class Node:
    """The plugins of an agent that has found no GPUs itself."""

    def __init__(self, folder: Path) -> None:
        self.inventory = DeviceInventory()
        self.plugins = DevicePlugins(folder, lambda node: self.inventory, Log())
        self.changed = asyncio.Event()
        self.plugins.on_change = lambda node: self.changed.set()

    @property
    def pid(self) -> int:
        process = self.plugins._kubelet._process
        assert process
        return process.pid

    async def until(self, amounts: tuple[dict[str, str], dict[str, str]]) -> None:
        async with asyncio.timeout(60):
            while self.plugins.amounts("node-0") != amounts:
                await self.changed.wait()
                self.changed.clear()


@pytest.fixture
async def node(folder: Path) -> AsyncIterator[Node]:
    started = Node(folder)
    yield started
    await started.plugins.close()


def gpus(capacity: int, allocatable: int) -> tuple[dict[str, str], dict[str, str]]:
    return {"nvidia.com/gpu": str(capacity)}, {"nvidia.com/gpu": str(allocatable)}


@pytest.fixture
def place(node: Node) -> Path:
    """The folder that a pod of the first node sees as the kubelet's."""
    return Path(node.plugins.host_path(HostPathVolume(path="/var/lib/kubelet/device-plugins"), "node-0").path)


async def test_plugins_register_while_a_pod_with_one_is_there(
    node: Node, place: Path, plugin_in: Callable[..., Any]
) -> None:
    await node.plugins.serve("elsewhere", ["/etc"])
    assert node.plugins._kubelet._process is None

    await node.plugins.serve("uid", ["/etc", str(place)])
    await node.plugins.serve("uid-2", [str(place)])
    await asyncio.to_thread(plugin_in, place, "--simulate-gpus", "2")
    await node.until(gpus(2, 2))
    pid = node.pid

    await node.plugins.release("uid")
    assert node.plugins.amounts("node-0") == gpus(2, 2)
    await node.plugins.release("uid-2")
    assert node.plugins.amounts("node-0") == ({}, {})
    assert not Path(f"/proc/{pid}").exists()


async def test_plugins_register_again_when_what_they_registered_with_was_killed(
    node: Node, place: Path, plugin_in: Callable[..., Any]
) -> None:
    await node.plugins.serve("uid", [str(place)])
    running = await asyncio.to_thread(plugin_in, place, "--simulate-gpus", "2")
    await node.until(gpus(2, 2))

    os.kill(node.pid, signal.SIGKILL)

    await asyncio.to_thread(running.wait_for, REGISTERED, 2)
    await node.until(gpus(2, 2))


async def test_the_plugin_of_a_node_is_told_of_its_gpus(node: Node, place: Path) -> None:
    node.inventory = simulate("node-0", 2)
    node.plugins.refresh("node-0")
    assert not (place / NODE_FILE).exists()

    await node.plugins.serve("uid", [str(place)])
    first = (place / NODE_FILE).read_bytes()
    node.inventory = with_unhealthy(node.inventory, frozenset({1}))
    node.plugins.refresh("node-0")

    assert (place / NODE_FILE).read_bytes() != first


async def test_what_no_plugin_serves_is_refused_and_what_runs_goes_on(node: Node, place: Path) -> None:
    await node.plugins.serve("uid", [str(place)])

    request = {"folder": str(place), "resource": "example.com/none", "available": ["a"]}
    with pytest.raises(ClusterError, match=r"example\.com/none"):
        await node.plugins._kubelet.ask(do="allocate", included=[], count=1, **request)
    assert await node.plugins._kubelet.ask(do="close", folder=str(place)) == {}
