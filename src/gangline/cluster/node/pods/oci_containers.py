"""Containers that an OCI runtime runs: what the shim is told about one, and what a pod leaves of them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path
from typing import Any

from gangline.api.core import Container
from gangline.cluster.images.image import Image
from gangline.cluster.images.runtime.image_store import find_oci_runtime
from gangline.cluster.node.pods.control_groups import group_name
from gangline.cluster.node.pods.oci_config import oci_config
from gangline.units import parse_quantity, quantity_ceil

DELETE_TIMEOUT_S = 10.0


def describe(
    spec: dict[str, Any], container: Container, image: Image, *, uid: str, cluster_id: str, state: Path
) -> None:
    """Add to what the shim is to start how the image's OCI runtime runs it; nothing for other images.

    Args:
        spec: of one attempt, see ``container_plan.plan_container``; changed.
        container: of the pod.
        image: of the container.
        uid: of the pod.
        cluster_id: of the cluster.
        state: folder in which the runtime keeps what it knows.
    """
    if not image.oci_runtime:
        return
    limits = container.resources.limits
    memory, cpu = limits.get("memory"), limits.get("cpu")
    config = oci_config(
        spec,
        cgroup=f"/{group_name(cluster_id, uid, container.name, spec['attempt'])}",
        permitted=_permitted_capabilities(),
        memory_bytes=None if memory is None else quantity_ceil(memory),
        cpus=None if cpu is None else float(parse_quantity(cpu)),
    )
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    spec["oci"] = {
        "program": image.oci_runtime,
        "state": str(state),
        "id": f"{uid}-{container.name}-{spec['attempt']}",
        "config": config,
    }


def _permitted_capabilities() -> frozenset[int]:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapPrm:"):
            mask = int(line.split()[1], 16)
            return frozenset(number for number in range(64) if mask >> number & 1)
    return frozenset()


async def delete_containers(state: Path, uid: str) -> None:
    """Have the runtime forget the containers of a pod whose processes have ended."""
    found = sorted(state.glob(f"{uid}-*")) if state.is_dir() else []
    for folder in found:
        words = [find_oci_runtime(), "--root", str(state), "delete", "--force", folder.name]
        with contextlib.suppress(OSError, TimeoutError):
            quiet = asyncio.subprocess.DEVNULL
            process = await asyncio.create_subprocess_exec(*words, stdout=quiet, stderr=quiet)
            async with asyncio.timeout(DELETE_TIMEOUT_S):
                await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
