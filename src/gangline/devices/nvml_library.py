"""The few NVML calls that Gangline makes, on the driver's library itself: for where pynvml is not installed.

Names, arguments and results are pynvml's, so that either can stand for the other.

Source: NVML API reference, ``nvml.h``.
"""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96


class NVMLError(Exception):
    """A call returned something else than success; ``value`` is its code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class PciInfo(ctypes.Structure):
    """``nvmlPciInfo_t``, as of driver 384 and later."""

    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    ]


class NvmlLibrary:
    """The library, loaded; raises OSError where there is none."""

    NVMLError = NVMLError

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:  # an old driver
            raise NVMLError(13) from None
        if code := function(*arguments):
            raise NVMLError(code)

    def _number(self, name: str, *arguments: Any) -> int:
        value = ctypes.c_uint()
        self._call(name, *arguments, ctypes.byref(value))
        return value.value

    def _text(self, name: str, device: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call(name, device, text, ctypes.c_uint(_TEXT_BYTES))
        return text.value.decode()

    def _pci(self, name: str, *arguments: Any) -> PciInfo:
        info = PciInfo()
        self._call(name, *arguments, ctypes.byref(info))
        return info

    # The names are those of nvml.h.

    def nvmlInit(self) -> None:  # noqa: N802, D102
        self._call("nvmlInit_v2")

    def nvmlShutdown(self) -> None:  # noqa: N802, D102
        self._call("nvmlShutdown")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802, D102
        return self._number("nvmlDeviceGetCount_v2")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> ctypes.c_void_p:  # noqa: N802, D102
        device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
        return device

    def nvmlDeviceGetUUID(self, device: ctypes.c_void_p) -> str:  # noqa: N802, D102
        return self._text("nvmlDeviceGetUUID", device)

    def nvmlDeviceGetName(self, device: ctypes.c_void_p) -> str:  # noqa: N802, D102
        return self._text("nvmlDeviceGetName", device)

    def nvmlDeviceGetMinorNumber(self, device: ctypes.c_void_p) -> int:  # noqa: N802, D102
        return self._number("nvmlDeviceGetMinorNumber", device)

    def nvmlDeviceGetPciInfo(self, device: ctypes.c_void_p) -> PciInfo:  # noqa: N802, D102
        return self._pci("nvmlDeviceGetPciInfo_v3", device)

    def nvmlDeviceGetTopologyCommonAncestor(  # noqa: N802, D102
        self, one: ctypes.c_void_p, other: ctypes.c_void_p
    ) -> int:
        return self._number("nvmlDeviceGetTopologyCommonAncestor", one, other)

    def nvmlDeviceGetNvLinkState(self, device: ctypes.c_void_p, link: int) -> int:  # noqa: N802, D102
        return self._number("nvmlDeviceGetNvLinkState", device, ctypes.c_uint(link))

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: ctypes.c_void_p, link: int) -> PciInfo:  # noqa: N802, D102
        return self._pci("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, ctypes.c_uint(link))
