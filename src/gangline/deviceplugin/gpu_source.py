"""Where a device plugin knows its node's GPUs from: NVML, simulated ones, or what the node itself says.

The one-machine cluster tells each node's plugin in a file beside the sockets, for its pods see no other GPUs
than those that were given to them, and simulated ones are on no machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gangline.devices.find import find_gpus
from gangline.devices.inventory import NODE_FILE, DeviceInventory

FILE_PERIOD_S = 1.0
PROBE_PERIOD_S = 10.0
"""How often real GPUs are asked whether they are there; the driver takes milliseconds, or a second."""


@dataclass(frozen=True, slots=True)
class GpuSource:
    """How the GPUs are read (it blocks), how often anew, and what of them is said at the start."""

    read: Callable[[], DeviceInventory]
    period_s: float
    origin: str


def of_node(folder: Path) -> GpuSource | None:
    """Return what the node of this folder says, None where it says nothing."""
    file = folder / NODE_FILE
    if not file.exists():
        return None
    read = msgspec.json.Decoder(DeviceInventory).decode
    return GpuSource(lambda: read(file.read_bytes()), FILE_PERIOD_S, "as the node agent shows them")


def of_driver() -> GpuSource:
    """Return the machine's own GPUs."""
    return GpuSource(lambda: find_gpus().inventory, PROBE_PERIOD_S, "as the driver shows them")


def of_values(inventory: DeviceInventory) -> GpuSource:
    """Return GPUs that never change."""
    return GpuSource(lambda: inventory, PROBE_PERIOD_S, "as this program was told")


def as_now(known: DeviceInventory, found: DeviceInventory) -> DeviceInventory:
    """Return the GPUs that are known, as healthy as they are found now; simulated ones just as found.

    A real GPU that is not found any more is lost, not gone, and healthy again when it is back.
    """
    if found.is_simulated or known.is_simulated or not known.gpus:
        return found
    healthy = {gpu.uuid for gpu in found.gpus if gpu.healthy}
    return replace(known, gpus=tuple(replace(gpu, healthy=gpu.uuid in healthy) for gpu in known.gpus))
