"""GPUs and their links as the NVIDIA driver's library (NVML) knows them.

pynvml is used where it is installed (``pip install gangline[gpu]``), else the same calls over ctypes.
Everything is asked once: a GPU that fails later must not take the others with it.

Source: NVML API reference.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.devices.inventory import DeviceInventory, Gpu, Links
from gangline.devices.nvml_library import LIBRARY, NvmlLibrary
from gangline.errors import UserError

NVLINKS_MAX = 18
"""NVLinks that a GPU can have (``NVML_NVLINK_MAX_LINKS``)."""

PCI_DEVICES = Path("/sys/bus/pci/devices")
_SYSTEM = 50
"""The level of two GPUs that share nothing nearer than the system."""

_ADDRESS = re.compile(r"([0-9a-f]+):([0-9a-f]{2}):([0-9a-f]{2}\.[0-9a-f])")


def load_nvml() -> Any | None:
    """Return something with pynvml's functions, None where the driver's library is not. Cost: 0.1 ms then."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    try:
        import pynvml
    except ImportError:
        return NvmlLibrary()
    return pynvml


def read_nvml(nvml: Any) -> DeviceInventory:
    """Return the machine's GPUs with their links.

    Cost: milliseconds, or a second where nothing keeps the driver awake.

    Raises:
        nvml.NVMLError: the driver does not answer at all. A single GPU that does not is told as not healthy,
            or left out when not even its id can be read.
    """
    nvml.nvmlInit()
    try:
        handles, gpus, addresses = [], [], []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
            uuid = "" if handle is None else _text(_ask(nvml, "nvmlDeviceGetUUID", handle))
            if not uuid:
                continue
            minor = _ask(nvml, "nvmlDeviceGetMinorNumber", handle)
            address = _bus_id(_ask(nvml, "nvmlDeviceGetPciInfo", handle))
            healthy = minor is not None and bool(address)
            handles.append(handle)
            addresses.append(address)
            gpus.append(Gpu(uuid, index, minor, numa_node(address), healthy))
        model = _text(_ask(nvml, "nvmlDeviceGetName", handles[0])) if handles else ""
        return DeviceInventory("nvml", model, tuple(gpus), _links(nvml, model, handles, addresses))
    finally:
        nvml.nvmlShutdown()


def _ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """Return the answer of one call, None when it fails: not supported, or a lost GPU."""
    try:
        return getattr(nvml, name)(*arguments)
    except nvml.NVMLError:
        return None


def _text(answer: Any) -> str:
    return answer.decode() if isinstance(answer, bytes) else str(answer or "")


def _bus_id(info: Any) -> str:
    return "" if info is None else _text(info.busId).lower()


def numa_node(address: str, devices: Path = PCI_DEVICES) -> int | None:
    """Return the memory node that a PCI device is next to, None where the machine does not say.

    NVML writes the domain of an address with eight digits, the kernel with four.
    """
    match = _ADDRESS.fullmatch(address.lower())
    if not match:
        return None
    name = f"{int(match[1], 16):04x}:{match[2]}:{match[3]}"
    try:
        found = int((devices / name / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return found if found >= 0 else None


def _links(nvml: Any, model: str, handles: Sequence[Any], addresses: Sequence[str]) -> Links:
    """Return the names of the links, the slowest for a lost GPU; none when the answers do not fit together.

    While one is lost no NVSwitch is believed in: the end of a link that leads to it looks just the same.
    """
    from gangline.topology import NvmlGpu, machine_of_nvml

    found = [index for index, address in enumerate(addresses) if address]
    believed = set(addresses) if len(found) < len(handles) else None
    gpus = [NvmlGpu(model, addresses[index], _remotes(nvml, handles[index], believed)) for index in found]
    levels = [[_level(nvml, handles[one], handles[other]) for other in found] for one in found]
    try:
        known = machine_of_nvml(gpus, levels).links
    except UserError:
        return ()
    everyone = range(len(handles))
    links = [["X" if one == other else "SYS" for other in everyone] for one in everyone]
    for row, one in enumerate(found):
        for column, other in enumerate(found):
            links[one][other] = known[row][column]
    return tuple(map(tuple, links))


def _level(nvml: Any, one: Any, other: Any) -> int:
    if one is other:
        return 0
    found = _ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", one, other)
    return _SYSTEM if found is None else int(found)


def _remotes(nvml: Any, handle: Any, believed: set[str] | None) -> tuple[str, ...]:
    """Return what is at the other end of each active NVLink of a GPU; of ``believed`` ends only, if given."""
    active = (link for link in range(NVLINKS_MAX) if _ask(nvml, "nvmlDeviceGetNvLinkState", handle, link))
    ends = (_bus_id(_ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)) for link in active)
    return tuple(end for end in ends if end and (believed is None or end in believed))
