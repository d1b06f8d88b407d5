"""Bring up the interfaces of a pod's network namespace, by ioctl: the shim needs no netlink for that."""

from __future__ import annotations

import fcntl
import socket
import struct

_SIOCADDRT = 0x890B
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_IFF_UP = 1
_RTF_UP_GATEWAY = 0x0003


def _address(text: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))


def _bring_up(control: socket.socket, interface: bytes) -> None:
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16s16x", interface))
    flags = struct.unpack_from("=H", answer, 16)[0]
    fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("=16sH14x", interface, flags | _IFF_UP))


def bring_up_loopback() -> None:
    """Set ``lo`` up: gloo and Open MPI bind to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _bring_up(control, b"lo")


def configure_interface(interface: str, address: str, prefix_length: int, gateway: str) -> None:
    """Give an interface its IPv4 address, set it up and route everything else to the gateway.

    Raises:
        OSError: the interface does not exist (yet), or an address is malformed.
    """
    name = interface.encode()
    netmask = socket.inet_ntoa(struct.pack("!I", (0xFFFFFFFF << (32 - prefix_length)) & 0xFFFFFFFF))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s", name, _address(address)))
        fcntl.ioctl(control, _SIOCSIFNETMASK, struct.pack("16s16s", name, _address(netmask)))
        _bring_up(control, name)
        if gateway:
            everything = _address("0.0.0.0")
            # struct rtentry on 64-bit Linux: pad, dst, gateway, genmask, flags, and zeros up to 120 bytes.
            route = struct.pack("=8x16s16s16sH", everything, _address(gateway), everything, _RTF_UP_GATEWAY)
            fcntl.ioctl(control, _SIOCADDRT, route.ljust(120, b"\0"))
