"""Our scheduler and device plugin: a pod gets the GPUs that were chosen, or is told which it got."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs grpcio")

from device_race import NODE, race

from gangline.api.resources import NODES


async def test_equal_pods_that_race_never_share_a_gpu_and_know_theirs(cluster: Any) -> None:
    await cluster.add_node(NODE)
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        kubelet = await race(cluster.client, Path(folder), 60)

    node = await cluster.client.get(NODES, NODE)
    assert len(kubelet.given) == 60
    assert '"source":"simulated"' in node["metadata"]["annotations"]["gangline.dev/gpu-topology"]
    assert node["metadata"]["labels"]["gangline.dev/gpu-source"] == "simulated"
