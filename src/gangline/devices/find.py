"""Find the real GPUs of this machine: by NVML, else by the driver's files."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.devices.driver_files import read_driver_files
from gangline.devices.inventory import DeviceInventory
from gangline.devices.nvml import load_nvml, read_nvml


@dataclass(frozen=True, slots=True)
class FoundDevices:
    """The machine's GPUs, and what went wrong on the way, for the log; empty when nothing did."""

    inventory: DeviceInventory
    trouble: str = ""


def find_gpus() -> FoundDevices:
    """Return the machine's GPUs. Blocks; under a millisecond where there is no driver."""
    trouble = ""
    nvml = load_nvml()
    if nvml is not None:
        try:
            return FoundDevices(read_nvml(nvml))
        except nvml.NVMLError as error:
            trouble = f"NVML does not answer: {error}"
    return FoundDevices(read_driver_files(), trouble)
