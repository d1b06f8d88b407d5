"""1,000 equal pods race for the GPUs of one node: none gets another's, and each is told which it has.

``GANGLINE_HOSTILE_ROUNDS`` (50) decides how many pods, twenty times as many; ``GANGLINE_HOSTILE_SEED`` (1)
in which order the kubelet takes those that came together. The kubelet is a stand-in, the GPUs are simulated.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs grpcio")

from device_race import NODE, race
from killed_schedulers import Scene, scene

PODS = max(int(os.environ.get("GANGLINE_HOSTILE_ROUNDS", "50")), 1) * 20
SEED = int(os.environ.get("GANGLINE_HOSTILE_SEED", "1"))

__all__ = ["scene"]
pytestmark = [pytest.mark.hostile, pytest.mark.timeout(7200)]


async def test_no_pod_gets_what_another_has(scene: Scene) -> None:
    await scene.add_node(NODE, cpu=64)
    await scene.schedulers.start()
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        kubelet = await race(scene.client, Path(folder), PODS, SEED)

    slow = sorted(kubelet.allocate_s)[int(0.99 * PODS)]
    print(
        f"{PODS} pods, seed {SEED}: {kubelet.not_as_chosen} got another set than was chosen, and were told; "
        f"Allocate p99 {1000 * slow:.1f} ms"
    )
