"""Rules over what a machine says of its GPUs: what is missing, and the fix for each. Pure.

Classes: ``gpu``, ``driver``, ``library``, ``device-file``, ``permission``, ``nvml``, ``fabric-manager``,
``imex``, ``container-runtime``, ``cdi``, ``selinux``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gangline.launch.preflight.findings import Finding, Severity
from gangline.launch.preflight.gpu.facts import (
    FABRIC_MANAGER,
    IMEX,
    IMEX_DEVICE,
    IMEX_NODES,
    SHARED_FILES,
    ContainerRuntime,
    DeviceFile,
    GpuFacts,
    User,
)

LOOKED_AT = (
    "/sys/bus/pci/devices (vendor 0x10de)",
    "/proc/driver/nvidia",
    "/dev/nvidia*",
)
"""Where a GPU would have shown."""
HOST = "localhost"
_GPU_FILE = re.compile(r"/dev/nvidia\d+")
"""``/dev/nvidia0``."""
Faults = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what was found, and what is wrong with it."""

    name: str
    found: str
    findings: tuple[Finding, ...] = ()

    @property
    def status(self) -> str:
        """``ok``, ``warning`` or ``fault``."""
        severities = {finding.severity for finding in self.findings}
        return "fault" if "fault" in severities else "warning" if severities else "ok"


def has_gpu(facts: GpuFacts) -> bool:
    """Return whether anything shows that there is, or was, one of NVIDIA's GPUs."""
    return bool(facts.gpus or facts.driver or facts.minors or any(map(_is_gpu, facts.files)))


def checks(facts: GpuFacts) -> list[Check]:
    """Return all checks, each built on those before it; without a GPU the first alone."""
    if not has_gpu(facts):
        others = f"; {len(facts.others)} of AMD, which are not checked" if facts.others else ""
        return [Check("GPUs", f"no NVIDIA GPU{others}")]
    return [Check(name, found(facts), tuple(wrong(facts))) for name, found, wrong in _CHECKS]


def _fault(kind: str, message: str, fix: str, severity: Severity = "fault") -> Finding:
    return Finding(kind, HOST, message, fix, severity)


def _is_gpu(file: DeviceFile) -> bool:
    return _GPU_FILE.fullmatch(file.path) is not None


def _gpus_found(facts: GpuFacts) -> str:
    known = f"{len(facts.minors)} known to the driver"
    return f"{len(facts.gpus)} on the PCI bus, {known}" if facts.gpus else known


def _gpus(facts: GpuFacts) -> Faults:
    if lost := len(facts.gpus) - len(facts.minors) if facts.driver else 0:
        taken = sorted({gpu.module for gpu in facts.gpus if gpu.module not in ("", "nvidia")})
        if lost > 0:
            yield _fault(
                "gpu",
                f"the driver has not taken {lost} of {len(facts.gpus)} GPUs on the PCI bus"
                + (f"; {', '.join(taken)} has some" if taken else ""),
                "`dmesg | grep -i -e nvrm -e xid` says why; a GPU given to virtual machines is vfio-pci's",
                "warning",
            )


def _driver_found(facts: GpuFacts) -> str:
    return facts.driver or "not loaded"


def _driver(facts: GpuFacts) -> Faults:
    if facts.driver:
        if "nvidia_uvm" not in facts.modules and facts.modules:
            yield _fault(
                "driver",
                "module nvidia_uvm is not loaded: CUDA fails with error 999 (unknown error)",
                "`modprobe nvidia-uvm`, or `nvidia-modprobe -u`; for every start: a line `nvidia-uvm` in "
                "/etc/modules-load.d/nvidia.conf",
            )
        return
    modules = {gpu.module for gpu in facts.gpus}
    if "nouveau" in modules | facts.modules:
        fix = (
            "write `blacklist nouveau` and `options nouveau modeset=0` into "
            "/etc/modprobe.d/blacklist-nouveau.conf, make the initramfs anew (`update-initramfs -u` or "
            "`dracut --force`), and restart"
        )
        yield _fault("driver", "nouveau has the GPUs, so that NVIDIA's driver cannot", fix)
    elif modules == {"vfio-pci"}:
        yield _fault(
            "driver",
            "all GPUs are given to virtual machines (vfio-pci)",
            "run the check in the machine that has them, or take them out of vfio-pci",
        )
    elif facts.kernel in facts.built_for:
        yield _fault(
            "driver",
            f"the driver's module is there for kernel {facts.kernel}, and not loaded",
            "`modprobe nvidia`; where that fails `dmesg | tail` says why: with Secure Boot the module "
            "has to be signed by an enrolled key (`mokutil --sb-state`)",
        )
    elif facts.built_for:
        yield _fault(
            "driver",
            f"the driver's module is there for kernel {', '.join(facts.built_for)}, and {facts.kernel} runs",
            "`dkms autoinstall` with the headers of the running kernel, or start the other kernel",
        )
    else:
        yield _fault(
            "driver",
            "NVIDIA's driver is not installed",
            "install it from the distribution or NVIDIA (package nvidia-driver, or cuda-drivers), and "
            "restart; on Kubernetes the GPU operator brings it",
        )


def _libraries_found(facts: GpuFacts) -> str:
    there = [one for one in facts.libraries if one.folder]
    versions = sorted({one.version for one in there if one.version})
    return f"{len(there)} of {len(facts.libraries)}{', ' if versions else ''}{', '.join(versions)}"


def _libraries(facts: GpuFacts) -> Faults:
    missing = [one.name for one in facts.libraries if not one.folder]
    if missing:
        fix = "install the driver's user space of the same version, then run `ldconfig`"
        if facts.in_container:
            fix = (
                "start the container with NVIDIA's runtime or CDI, and with "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            )
        yield _fault("library", f"not found by the linker: {', '.join(missing)}", fix)
    for one in facts.libraries:
        if facts.driver and one.version and one.version != facts.driver:
            yield _fault(
                "library",
                f"{one.folder}/{one.name} is of driver {one.version}, the loaded module of {facts.driver}",
                "restart the machine, or unload and load the module (`rmmod nvidia_uvm nvidia; modprobe "
                "nvidia`), with which the update ends",
            )
            return


def _files_found(facts: GpuFacts) -> str:
    return f"{sum(map(_is_gpu, facts.files))} GPUs" if facts.files else "none"


def _files(facts: GpuFacts) -> Faults:
    there = {file.path.removeprefix("/dev/") for file in facts.files}
    wanted = [*(f"nvidia{minor}" for minor in facts.minors), *SHARED_FILES] if facts.driver else []
    missing = [name for name in wanted if name not in there]
    if not missing:
        return
    if facts.in_container:
        yield _fault(
            "device-file",
            f"this container was not given /dev/{', /dev/'.join(missing)}",
            "ask for them: `nvidia.com/gpu` in a pod's limits, `docker run --gpus all`, "
            "`podman run --device nvidia.com/gpu=all`",
            "fault" if any(name in missing for name in SHARED_FILES) else "warning",
        )
        return
    made = [f"`nvidia-modprobe -c {name.removeprefix('nvidia')}`" for name in missing if name[6:].isdigit()]
    made += ["`nvidia-modprobe -u`"] if "nvidia-uvm" in missing else []
    made += ["`nvidia-modprobe`"] if "nvidiactl" in missing else []
    yield _fault(
        "device-file",
        f"missing: /dev/{', /dev/'.join(missing)}",
        f"as root {', '.join(made)}; the service nvidia-persistenced keeps them there",
    )


def _permissions_found(facts: GpuFacts) -> str:
    modes = sorted({f"{file.mode:04o}" for file in facts.files})
    return ", ".join(modes) or "no files"


def _permissions(facts: GpuFacts) -> Faults:
    closed = [file for file in facts.files if not _may_use(file, facts.user) and IMEX_DEVICE not in file.path]
    if not closed:
        return
    first = closed[0]
    yield _fault(
        "permission",
        f"user {facts.user.uid} may not read and write {', '.join(file.path for file in closed)} "
        f"(mode {first.mode:04o}, owner {first.uid}:{first.gid})",
        (
            f"join group {first.gid} (`usermod -aG GROUP USER`, then log in again), or "
            if first.mode & 0o060 == 0o060
            else ""
        )
        + "set NVreg_DeviceFileMode=0666 for the module in /etc/modprobe.d/nvidia.conf; a chmod is undone by "
        "the driver",
    )


def _may_use(file: DeviceFile, user: User) -> bool:
    """Return whether a user may read and write a file, by the first class of its mode that fits."""
    if user.uid == 0:
        return True
    shift = 6 if user.uid == file.uid else 3 if file.gid in user.gids else 0
    return file.mode >> shift & 0o6 == 0o6


def _nvml_found(facts: GpuFacts) -> str:
    if facts.asked is None:
        return facts.trouble or "not asked"
    return f"{facts.asked} GPUs answer" if not facts.lost else f"{len(facts.lost)} of {facts.asked} lost"


def _nvml(facts: GpuFacts) -> Faults:
    if facts.trouble:
        yield _fault("nvml", facts.trouble, "mend what stands above; then `nvidia-smi` has to list the GPUs")
    if facts.lost:
        yield _fault(
            "nvml",
            f"{', '.join(facts.lost)} does not answer",
            "`dmesg | grep Xid` has its fault (79: fallen off the bus); drain the node, then "
            "`nvidia-smi -r` or a restart",
        )


def _fabric_found(facts: GpuFacts) -> str:
    if not facts.switches:
        return "not needed: no NVSwitch on the PCI bus"
    runs = "runs" if FABRIC_MANAGER in facts.processes else "does not run"
    return f"{runs}, {facts.switches} NVSwitches"


def _fabric(facts: GpuFacts) -> Faults:
    if facts.switches and FABRIC_MANAGER not in facts.processes and not facts.in_container:
        yield _fault(
            "fabric-manager",
            f"{facts.switches} NVSwitches, and no fabric manager runs: CUDA fails with error 802 (system not "
            "yet initialized)",
            f"install nvidia-fabricmanager of exactly version {facts.driver or 'of the driver'}, then "
            "`systemctl enable --now nvidia-fabricmanager`",
        )


def _channels(facts: GpuFacts) -> list[DeviceFile]:
    return [file for file in facts.files if IMEX_DEVICE in file.path]


def _imex_found(facts: GpuFacts) -> str:
    channels = len(_channels(facts))
    if not facts.imex_nodes and not channels:
        return "not needed: no domain of NVLinks over several nodes is set up"
    runs = "runs" if IMEX in facts.processes else "does not run"
    return f"{runs}, {facts.imex_nodes} nodes, {channels} channels"


def _imex(facts: GpuFacts) -> Faults:
    if not facts.imex_nodes:
        return
    if IMEX not in facts.processes and not facts.in_container:
        yield _fault(
            "imex",
            f"/{IMEX_NODES} names {facts.imex_nodes} nodes, and nvidia-imex does not run",
            "`systemctl enable --now nvidia-imex` on each of them; `nvidia-imex-ctl -N` shows who is missing",
        )
    if not _channels(facts):
        yield _fault(
            "imex",
            f"no channel in /dev/{IMEX_DEVICE}: memory of other nodes cannot be opened",
            f"`mknod /dev/{IMEX_DEVICE}/channel0 c MAJOR 0` with the number of {IMEX_DEVICE} in "
            "/proc/devices, at every start; on Kubernetes a ComputeDomain of NVIDIA's DRA "
            "driver makes and gives them",
        )
    elif closed := [file.path for file in _channels(facts) if not _may_use(file, facts.user)]:
        yield _fault(
            "imex",
            f"user {facts.user.uid} may not use {', '.join(closed)}",
            f"`chmod 666 {closed[0]}` for one user of the domain, or a channel for each",
        )


def _runtime_found(facts: GpuFacts) -> str:
    toolkit = "toolkit there" if facts.has_toolkit else "no toolkit"
    names = ", ".join(one.name for one in facts.runtimes)
    return f"{names}; {toolkit}" if names else "not needed: no container runtime"


def _runtime(facts: GpuFacts) -> Faults:
    if not facts.runtimes or facts.in_container:
        return
    if not facts.has_toolkit and not facts.cdi:
        yield _fault(
            "container-runtime",
            "NVIDIA's container toolkit is not installed: containers get device files, and no libraries",
            "install nvidia-container-toolkit; on Kubernetes the GPU operator brings it",
            "warning",
        )
        return
    for one in facts.runtimes:
        if not one.knows_nvidia and not (one.has_cdi and facts.cdi):
            yield _fault(
                "container-runtime",
                f"the settings of {one.name} name no runtime of NVIDIA's, nor CDI with a file of the GPUs",
                _configure(one),
                "warning",
            )


def _configure(runtime: ContainerRuntime) -> str:
    if runtime.name == "k3s":
        return "`systemctl restart k3s`: it finds the toolkit at its start"
    return (
        f"`nvidia-ctk runtime configure --runtime={runtime.name} --set-as-default`, then "
        f"`systemctl restart {runtime.name}`"
    )


def _cdi_found(facts: GpuFacts) -> str:
    made_for = ", ".join(f"{one.path} for driver {one.driver or 'unknown'}" for one in facts.cdi)
    return made_for or "no file of NVIDIA's GPUs"


def _cdi(facts: GpuFacts) -> Faults:
    for one in facts.cdi:
        if facts.driver and one.driver and one.driver != facts.driver:
            yield _fault(
                "cdi",
                f"{one.path} was made for driver {one.driver}, {facts.driver} is loaded: no container starts",
                f"`nvidia-ctk cdi generate --output={one.path}`, after every update of the driver",
            )


def _selinux_found(facts: GpuFacts) -> str:
    if not facts.selinux:
        return "off: no label keeps a container from its GPUs"
    wrong = sum(label.is_wrong for label in facts.labels)
    return f"on, {wrong} of {sum(label.found is not None for label in facts.labels)} labels wrong"


def _selinux(facts: GpuFacts) -> Faults:
    wrong = [label.path for label in facts.labels if label.is_wrong] if facts.selinux else []
    if wrong:
        yield _fault(
            "selinux",
            f"{len(wrong)} of the files below have another type than containers need",
            f"`restorecon -v {' '.join(wrong)}`; or `chcon -t TYPE FILE`, until the next relabelling",
        )


_CHECKS: tuple[tuple[str, Callable[[GpuFacts], str], Callable[[GpuFacts], Faults]], ...] = (
    ("GPUs", _gpus_found, _gpus),
    ("driver", _driver_found, _driver),
    ("libraries", _libraries_found, _libraries),
    ("device files", _files_found, _files),
    ("permissions", _permissions_found, _permissions),
    ("NVML", _nvml_found, _nvml),
    ("fabric manager", _fabric_found, _fabric),
    ("IMEX", _imex_found, _imex),
    ("containers", _runtime_found, _runtime),
    ("CDI", _cdi_found, _cdi),
    ("SELinux", _selinux_found, _selinux),
)
