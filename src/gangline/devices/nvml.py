"""GPUs and their links as the NVIDIA driver's library (NVML) knows them.

pynvml is used where it is installed (``pip install gangline[gpu]``), else the same calls over ctypes.
Everything is asked once: a GPU that fails later must not take the others with it.

Source: NVML API reference; names of links as ``nvidia-smi topo -m`` prints them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.devices.inventory import Gpu, Inventory
from gangline.devices.nvml_library import LIBRARY, NvmlLibrary

LINKS_MAX = 18
"""NVLinks that a GPU can have (``NVML_NVLINK_MAX_LINKS``)."""

_P2P_NVLINK = 2
_P2P_OK = 0
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""By the nearest common part of the PCI tree; 0 is one board with two GPUs."""

_FARTHEST = "SYS"
PCI_DEVICES = Path("/sys/bus/pci/devices")

Address = tuple[int, int, int]


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


@dataclass(frozen=True, slots=True)
class _Device:
    handle: Any
    gpu: Gpu
    address: Address


def read_nvml(nvml: Any) -> Inventory:
    """Return the machine's GPUs with their links.

    Cost: milliseconds, or a second where nothing keeps the driver awake.

    Raises:
        nvml.NVMLError: the driver does not answer at all. A single GPU that does not is told as not healthy,
            or left out when not even its id can be read.
    """
    nvml.nvmlInit()
    try:
        model = ""
        devices = []
        for index in range(nvml.nvmlDeviceGetCount()):
            device = _read_device(nvml, index)
            if device is not None:
                devices.append(device)
                model = model or _text(_ask(nvml, "nvmlDeviceGetName", device.handle))
        links = tuple(tuple(_link(nvml, one, other, devices) for other in devices) for one in devices)
        return Inventory("nvml", model, tuple(device.gpu for device in devices), links)
    finally:
        nvml.nvmlShutdown()


def _read_device(nvml: Any, index: int) -> _Device | None:
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    uuid = _text(_ask(nvml, "nvmlDeviceGetUUID", handle)) if handle is not None else ""
    if not uuid:
        return None
    minor = _ask(nvml, "nvmlDeviceGetMinorNumber", handle)
    address = _address(_ask(nvml, "nvmlDeviceGetPciInfo", handle))
    healthy = minor is not None and address is not None
    gpu = Gpu(uuid=uuid, index=index, minor=minor, numa=numa_node(address), healthy=healthy)
    return _Device(handle, gpu, address or (-1, index, 0))


def _ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """Return the answer of one call, None when it fails: not supported, or a lost GPU."""
    try:
        return getattr(nvml, name)(*arguments)
    except nvml.NVMLError:
        return None


def _text(answer: Any) -> str:
    return answer.decode() if isinstance(answer, bytes) else str(answer or "")


def _address(info: Any) -> Address | None:
    """Return a PCI address as numbers: the texts differ in the width of the domain from call to call."""
    return None if info is None else (int(info.domain), int(info.bus), int(info.device))


def numa_node(address: Address | None, devices: Path = PCI_DEVICES) -> int | None:
    """Return the memory node that a PCI device is next to, None where the machine does not say."""
    if address is None:
        return None
    domain, bus, device = address
    try:
        found = int((devices / f"{domain:04x}:{bus:02x}:{device:02x}.0" / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return found if found >= 0 else None


def _link(nvml: Any, one: _Device, other: _Device, devices: list[_Device]) -> str:
    """Return the name of the best link between two GPUs: NVLink, directly or by a switch, else PCI."""
    if one is other:
        return "X"
    direct = sum(peer == other.address for peer in _peers(nvml, one))
    if direct:
        return f"NV{direct}"
    if _ask(nvml, "nvmlDeviceGetP2PStatus", one.handle, other.handle, _P2P_NVLINK) == _P2P_OK:
        own = {device.address for device in devices}
        switched = min(sum(peer not in own for peer in _peers(nvml, device)) for device in (one, other))
        if switched:
            return f"NV{switched}"
    level = _ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", one.handle, other.handle)
    return _ANCESTORS.get(level, _FARTHEST)


def _peers(nvml: Any, device: _Device) -> list[Address]:
    """Return what is at the other end of each active NVLink of a GPU."""
    found = []
    for link in range(LINKS_MAX):
        if _ask(nvml, "nvmlDeviceGetNvLinkState", device.handle, link):
            peer = _address(_ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", device.handle, link))
            if peer is not None:
                found.append(peer)
    return found
