"""The device plugin beside a stand-in kubelet: how long an allocation takes, and the plugin's memory.

With a connection to a real API server it publishes what the node has and asks which GPUs were chosen. The
kubelet that stands in has no list of pods. Memory is the proportional set size: the pages that the plugin
shares with other Pythons of the machine count by their share, so that the figure is larger on a machine
where it is the only one; what nobody else can have, its anonymous pages, stands beside it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import Figure
from laboratory import REPOSITORY, Laboratory, memory_mb, proportional_memory_mb
from operator_plane import client_of

CALLS = 1000
GPUS = 8
SETTLED_S = 2.0
"""After the calls: the node is published and pods were looked at by then."""

STAND_IN = REPOSITORY / "tests" / "integration" / "deviceplugin" / "conftest.py"


def stand_in_kubelet() -> Any:
    """Return the class of the stand-in."""
    spec = importlib.util.spec_from_file_location("stand_in_kubelet", STAND_IN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.StandInKubelet


@contextmanager
def cluster() -> Iterator[Path]:
    """Start a control plane with a node of the plugin's name; return its kubeconfig."""
    from control_plane import ControlPlane

    from gangline.api.resources import NODES

    async def add(plane: Any) -> None:
        async with client_of(plane) as client:
            await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})

    with ControlPlane(controllers=False) as plane:
        asyncio.run(add(plane))
        yield plane.kubeconfig


def sample(*options: str) -> tuple[float, float, float]:
    """Return the 99th percentile of an allocation in ms, and the memory in MB: proportional, anonymous."""
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        kubelet = stand_in_kubelet()(Path(folder))
        words = [
            "--folder",
            folder,
            "--node",
            "n",
            f"--simulate-gpus={GPUS}",
            "--gpu-model=v100-dgx1",
            *options,
        ]
        program = [sys.executable, "-m", "gangline", "device-plugin", *words]
        plugin = subprocess.Popen(program, stderr=subprocess.DEVNULL)
        try:
            kubelet.requests.get(timeout=60)
            times = []
            for call in range(CALLS):
                started_s = time.perf_counter()
                kubelet.allocate(f"GPU-simulated-n-{call % GPUS}")
                times.append(1000 * (time.perf_counter() - started_s))
            time.sleep(SETTLED_S)
            slow_ms = sorted(times)[int(0.99 * CALLS)]
            return slow_ms, proportional_memory_mb(plugin.pid), memory_mb(plugin.pid, "Pss_Anon")
        finally:
            plugin.terminate()
            plugin.wait(30)
            kubelet.close()


def run(laboratory: Laboratory) -> list[Figure]:
    alone = [sample() for _ in range(laboratory.rounds)]
    with cluster() as kubeconfig:
        told = [
            sample(f"--kubeconfig={kubeconfig}", f"--kubelet-folder={kubeconfig.parent / 'none'}")
            for _ in range(laboratory.rounds)
        ]
    title = f"Allocate, 99th percentile of {CALLS}"
    return [
        Figure(title, "ms", [one[0] for one in alone], goal="<= 5"),
        Figure(f"{title}, with a cluster", "ms", [one[0] for one in told], goal="<= 5"),
        Figure("memory of the plugin", "MB", [one[1] for one in alone], goal="<= 40"),
        Figure("memory with a cluster", "MB", [one[1] for one in told], goal="<= 40"),
        Figure("- of it anonymous", "MB", [one[2] for one in told]),
    ]
