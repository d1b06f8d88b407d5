"""What files of a machine say about its NVIDIA GPUs: read below one folder, nothing judged.

Source: NVIDIA driver's README ("Known issues", "The /proc interface"), guides to its Fabric Manager, to IMEX
and to its container toolkit; CDI specification.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gangline.launch.preflight.gpu.selinux_labels import LabelledFile, is_on, labelled_files
from gangline.launch.preflight.host_probe import gpus as driver_of

NVIDIA, AMD = "0x10de", "0x1002"
_DISPLAYS, _BRIDGE = ("0x0300", "0x0302", "0x0380", "0x1200"), "0x0680"
"""Beginnings of PCI classes: of GPUs, and of what NVSwitches call themselves."""
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
"""CUDA's own, NVML, and what compiles kernels for a GPU that is newer than a program."""
LIBRARY_FOLDERS = (
    *("lib64", "usr/lib64", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"),
    *("lib", "usr/lib", "usr/local/nvidia/lib64", "usr/lib/wsl/lib", "run/nvidia/driver/usr/lib64"),
)
SHARED_FILES = ("nvidiactl", "nvidia-uvm")
"""Device files without which no program finds any GPU."""
FABRIC_MANAGER, IMEX = "nv-fabricmanage", "nvidia-imex"
"""Names of processes, as the kernel cuts them."""
IMEX_DEVICE = "nvidia-caps-imex-channels"
IMEX_NODES = "etc/nvidia-imex/nodes_config.cfg"
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io")
_RUNTIMES = (
    ("containerd", ("etc/containerd/config.toml", "etc/containerd/conf.d/*.toml"), "usr/bin/containerd"),
    ("k3s", ("var/lib/rancher/k3s/agent/etc/containerd/config.toml",), "usr/local/bin/k3s"),
    ("docker", ("etc/docker/daemon.json",), "usr/bin/dockerd"),
    ("crio", ("etc/crio/crio.conf", "etc/crio/crio.conf.d/*.conf"), "usr/bin/crio"),
)
_TOOLKIT = ("usr/bin/nvidia-ctk", "usr/bin/nvidia-container-runtime", "usr/local/nvidia/toolkit/nvidia-ctk")
_CDI = ("etc/cdi/*.yaml", "etc/cdi/*.json", "var/run/cdi/*.yaml", "var/run/cdi/*.json")
_CDI_KIND = re.compile(r"[\"']?kind[\"']?:\s*[\"']?(\S+?/[\w.-]+)")
"""``kind: nvidia.com/gpu``, or as JSON ``"kind": "nvidia.com/gpu"``."""
_LIBRARY_VERSION = re.compile(r"libcuda\.so\.(\d+(?:\.\d+)+)")
"""``/usr/lib64/libcuda.so.550.54.15``."""
FILE_BYTES_MAX = 1 << 22


class PciDevice(NamedTuple):
    """A device on the PCI bus: address, vendor, and the kernel module that has it, empty for none."""

    address: str
    vendor: str
    module: str


class DeviceFile(NamedTuple):
    """A device file: mode bits and owner."""

    path: str
    mode: int
    uid: int
    gid: int


class Library(NamedTuple):
    """A library of the driver: its folder, empty where it was not found, and version, empty if unknown."""

    name: str
    folder: str
    version: str


class ContainerRuntime(NamedTuple):
    """A container runtime, and whether its settings name NVIDIA's or switch CDI on."""

    name: str
    knows_nvidia: bool
    has_cdi: bool


class CdiFile(NamedTuple):
    """A CDI file of NVIDIA's GPUs, and the version of the driver that it was made for, empty if unknown."""

    path: str
    driver: str


class User(NamedTuple):
    """Who is to use the GPUs."""

    uid: int
    gids: frozenset[int]


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What is there; see the fields' types.

    Attributes:
        user: who asks.
        in_container: whether this is a container, as far as it shows.
        gpus: NVIDIA's on the PCI bus.
        others: GPUs of other makers there.
        switches: NVSwitches on the bus.
        driver: version of the loaded module, empty for none.
        minors: of the GPUs that the driver knows, by PCI address.
        modules: loaded kernel modules that matter.
        kernel: release of the running one.
        built_for: kernels that have the driver's module on disk.
        libraries: one for each of ``LIBRARIES``.
        files: device files of the driver.
        processes: services of the driver that run.
        imex_nodes: nodes in the settings of IMEX.
        has_toolkit: whether NVIDIA's container toolkit is there.
        runtimes: container runtimes that are there.
        cdi: CDI files of NVIDIA's GPUs.
        selinux: whether it is on.
        labels: its table, with what files have.
        asked: how many GPUs NVML tells of, None where it was not asked or does not answer.
        trouble: what NVML said instead.
        lost: ids of GPUs that do not answer.
    """

    user: User
    in_container: bool = False
    gpus: tuple[PciDevice, ...] = ()
    others: tuple[PciDevice, ...] = ()
    switches: int = 0
    driver: str = ""
    minors: tuple[int, ...] = ()
    modules: frozenset[str] = frozenset()
    kernel: str = ""
    built_for: tuple[str, ...] = ()
    libraries: tuple[Library, ...] = ()
    files: tuple[DeviceFile, ...] = ()
    processes: frozenset[str] = frozenset()
    imex_nodes: int = 0
    has_toolkit: bool = False
    runtimes: tuple[ContainerRuntime, ...] = ()
    cdi: tuple[CdiFile, ...] = ()
    selinux: bool = False
    labels: tuple[LabelledFile, ...] = ()
    asked: int | None = None
    trouble: str = ""
    lost: tuple[str, ...] = ()


def this_user() -> User:
    """Return who runs this program."""
    return User(os.geteuid(), frozenset({os.getegid(), *os.getgroups()}))


def read_gpu_facts(root: Path = Path("/"), user: User | None = None) -> GpuFacts:
    """Return what the files below a folder say; NVML is not asked. Cost: about 10 ms."""
    driver = root / "proc/driver/nvidia"
    displays, switches = _pci(root)
    built = root.glob("lib/modules/*/**/nvidia.ko*")
    return GpuFacts(
        user=user or this_user(),
        in_container=any((root / mark).exists() for mark in _CONTAINER_MARKS),
        gpus=tuple(one for one in displays if one.vendor == NVIDIA),
        others=tuple(one for one in displays if one.vendor == AMD),
        switches=switches or len(list(root.glob("proc/driver/nvidia-nvswitch/devices/*"))),
        driver=driver_of(driver)[1],
        minors=tuple(_minors(driver)),
        modules=frozenset(line.split()[0] for line in _lines(root / "proc/modules")),
        kernel=_text(root / "proc/sys/kernel/osrelease").strip(),
        built_for=tuple(sorted({path.relative_to(root / "lib/modules").parts[0] for path in built})),
        libraries=tuple(_libraries(root)),
        files=tuple(_device_files(root)),
        processes=frozenset(_text(path).strip() for path in root.glob("proc/[0-9]*/comm")),
        imex_nodes=sum(1 for line in _lines(root / IMEX_NODES) if not line.startswith("#")),
        has_toolkit=any((root / path).exists() for path in _TOOLKIT),
        runtimes=tuple(_runtimes(root)),
        cdi=tuple(_cdi_files(root)),
        selinux=is_on(root),
        labels=tuple(labelled_files(root)),
    )


def _text(path: Path) -> str:
    with suppress(OSError), path.open(errors="replace") as file:
        return file.read(FILE_BYTES_MAX)
    return ""


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in _text(path).splitlines() if line.strip()]


def _pci(root: Path) -> tuple[list[PciDevice], int]:
    """Return the GPUs on the bus, and how many NVSwitches are there."""
    found, switches = [], 0
    for folder in sorted(root.glob("sys/bus/pci/devices/*")):
        vendor, kind = (_text(folder / name).strip() for name in ("vendor", "class"))
        if vendor in (NVIDIA, AMD) and kind.startswith(_DISPLAYS):
            module = ""
            with suppress(OSError):
                module = (folder / "driver").readlink().name
            found.append(PciDevice(folder.name, vendor, module))
        switches += vendor == NVIDIA and kind.startswith(_BRIDGE)
    return found, switches


def _minors(driver: Path) -> Iterable[int]:
    for path in sorted(driver.glob("gpus/*/information")):
        for line in _lines(path):
            name, _, value = line.partition(":")
            if name.strip() == "Device Minor" and value.strip().isdigit():
                yield int(value)


def _libraries(root: Path) -> Iterable[Library]:
    named = [
        _lines(root / "etc/ld.so.conf"),
        *(_lines(path) for path in root.glob("etc/ld.so.conf.d/*.conf")),
    ]
    more = [line.lstrip("/") for lines in named for line in lines if line.startswith("/")]
    for name in LIBRARIES:
        folders = (folder for folder in (*more, *LIBRARY_FOLDERS) if _target(root / folder / name).is_file())
        folder = next(folders, "")
        version = _target(root / folder / name).name.removeprefix(name.removesuffix("1")) if folder else ""
        yield Library(name, folder and f"/{folder}", version if "." in version else "")


def _target(path: Path) -> Path:
    """Return what a link of a library leads to; such links stay in their folder."""
    for _ in range(3):
        if not path.is_symlink():
            break
        path = path.with_name(path.readlink().name)
    return path


def _device_files(root: Path) -> Iterable[DeviceFile]:
    for pattern in ("dev/nvidia*", f"dev/{IMEX_DEVICE}/channel*"):
        for path in sorted(root.glob(pattern)):
            if not path.is_dir():
                found = path.stat()
                yield DeviceFile(
                    f"/{path.relative_to(root)}", found.st_mode & 0o777, found.st_uid, found.st_gid
                )


def _runtimes(root: Path) -> Iterable[ContainerRuntime]:
    for name, patterns, program in _RUNTIMES:
        paths: Sequence[Path] = [path for pattern in patterns for path in sorted(root.glob(pattern))]
        if paths or (root / program).exists():
            text = "\n".join(_text(path) for path in paths)
            # enable_cdi = true, as containerd 1.7 writes it; CRI-O has it on.
            has_cdi = name == "crio" or re.search(r"enable_cdi\s*=\s*true", text) is not None
            yield ContainerRuntime(name, "nvidia" in text, has_cdi)


def _cdi_files(root: Path) -> Iterable[CdiFile]:
    for path in sorted(path for pattern in _CDI for path in root.glob(pattern)):
        text = _text(path)
        kind = _CDI_KIND.search(text)
        if kind and kind[1].endswith("nvidia.com/gpu"):
            made_for = _LIBRARY_VERSION.search(text)
            yield CdiFile(f"/{path.relative_to(root)}", made_for[1] if made_for else "")
