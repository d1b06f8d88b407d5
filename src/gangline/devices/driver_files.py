"""GPUs as the NVIDIA driver's files show them: for where its library cannot be loaded. Links stay unknown."""

from __future__ import annotations

import re
from pathlib import Path

from gangline.devices.inventory import DeviceInventory, Gpu
from gangline.devices.nvml import numa_node

DRIVER = Path("/proc/driver/nvidia/gpus")
DEV = Path("/dev")
FILE_ID = "nvidia"
"""The id of a GPU of which only the device file is known begins so."""

_NODE = re.compile(r"nvidia(\d+)")
SHARED_NODES = (
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
    "nvidia-modeset",
    "nvidia-caps",
    "nvidia-caps-imex-channels",
)
"""Device files that every program on any GPU needs, where they exist."""


def read_driver_files(driver: Path = DRIVER, dev: Path = DEV) -> DeviceInventory:
    """Return the GPUs that have a device file, with the driver's ids, else named by the file.

    Source: ``/proc/driver/nvidia/gpus/ADDRESS/information`` of the NVIDIA driver.
    """
    known: dict[int, tuple[str, str]] = {}
    model = ""
    for path in sorted(driver.glob("*/information")):
        facts = _facts(path)
        number = facts.get("Device Minor", "")
        if number.isdigit() and "?" not in facts.get("GPU UUID", "?"):
            known[int(number)] = (facts["GPU UUID"], path.parent.name)
            model = model or facts.get("Model", "")
    names = (_NODE.fullmatch(path.name) for path in dev.glob("nvidia*"))
    minors = [int(name[1]) for name in names if name]
    in_order = sorted(minors, key=lambda minor: (known.get(minor, ("", ""))[1], minor))
    gpus = []
    for index, minor in enumerate(in_order):
        uuid, address = known.get(minor, (f"{FILE_ID}{minor}", ""))
        gpus.append(Gpu(uuid, index, minor, numa_node(address)))
    return DeviceInventory(source="file", model=model or "NVIDIA GPU", gpus=tuple(gpus))


def _facts(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def device_files(minors: list[int], dev: Path = DEV) -> list[str]:
    """Return the device files that a pod with these GPUs needs; none for no GPU."""
    names = [*(f"nvidia{minor}" for minor in minors), *SHARED_NODES] if minors else []
    return [str(dev / name) for name in names if (dev / name).exists()]
