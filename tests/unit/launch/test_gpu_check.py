"""`gangline check --gpu` over trees of files: what is missing on a machine with GPUs, and the fix for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.launch.preflight.findings import Finding
from gangline.launch.preflight.gpu.facts import GpuFacts, User, read_gpu_facts
from gangline.launch.preflight.gpu.rules import checks

OWN = "550.54.15"
USER = User(1000, frozenset({1000}))
Change = Callable[[Path], None]


def write(path: Path, text: str = "", mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return the files of a machine with two GPUs and an NVSwitch on which nothing is wrong."""
    for index, kind in enumerate(("0x030200", "0x030200", "0x068000")):
        device = tmp_path / f"sys/bus/pci/devices/0000:0{index}:00.0"
        write(device / "vendor", "0x10de\n")
        write(device / "class", f"{kind}\n")
        (device / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    proc = tmp_path / "proc"
    version = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {OWN}  Release Build"
    write(proc / "driver/nvidia/version", version)
    for minor in (0, 1):
        write(
            proc / f"driver/nvidia/gpus/0000:0{minor}:00.0/information",
            f"Model: H\nDevice Minor: \t {minor}\n",
        )
    write(proc / "modules", "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0\n")
    write(proc / "sys/kernel/osrelease", "6.1.0-20\n")
    write(proc / "77/comm", "nv-fabricmanage\n")
    for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
        library = tmp_path / f"usr/lib64/{name}.so"
        write(library.with_name(f"{name}.so.{OWN}"), "ELF")
        library.with_name(f"{name}.so.1").symlink_to(f"{name}.so.{OWN}")
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        write(tmp_path / "dev" / name, mode=0o666)
    write(tmp_path / "usr/bin/nvidia-ctk")
    write(tmp_path / "etc/containerd/config.toml", 'default_runtime_name = "nvidia"\n')
    write(
        tmp_path / "etc/cdi/nvidia.yaml",
        f"kind: nvidia.com/gpu\nmounts:\n- hostPath: /usr/lib64/libcuda.so.{OWN}",
    )
    return tmp_path


def found_on(machine: Path) -> list[Finding]:
    return [one for check in checks(read_gpu_facts(machine, USER)) for one in check.findings]


def test_a_machine_on_which_nothing_is_wrong(machine: Path) -> None:
    told = {check.name: (check.status, check.found) for check in checks(read_gpu_facts(machine, USER))}

    assert told == {
        "GPUs": ("ok", "2 on the PCI bus, 2 known to the driver"),
        "driver": ("ok", OWN),
        "libraries": ("ok", f"3 of 3, {OWN}"),
        "device files": ("ok", "2 GPUs"),
        "permissions": ("ok", "0666"),
        "NVML": ("ok", "not asked"),
        "fabric manager": ("ok", "runs, 1 NVSwitches"),
        "IMEX": ("ok", "not needed: no domain of NVLinks over several nodes is set up"),
        "containers": ("ok", "containerd; toolkit there"),
        "CDI": ("ok", f"/etc/cdi/nvidia.yaml for driver {OWN}"),
        "SELinux": ("ok", "off: no label keeps a container from its GPUs"),
    }


def test_a_machine_without_a_gpu_says_so_and_nothing_else(tmp_path: Path) -> None:
    (check,) = checks(read_gpu_facts(tmp_path, USER))
    assert (check.status, check.found) == ("ok", "no NVIDIA GPU")

    write(tmp_path / "sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n")
    write(tmp_path / "sys/bus/pci/devices/0000:03:00.0/class", "0x120000\n")
    (check,) = checks(read_gpu_facts(tmp_path, USER))
    assert check.found == "no NVIDIA GPU; 1 of AMD, which are not checked"


def without_driver(machine: Path) -> None:
    shutil.rmtree(machine / "proc/driver")
    write(machine / "proc/modules", "ext4 1 0 - Live 0x0\n")


def built_for(kernel: str) -> Change:
    def change(machine: Path) -> None:
        without_driver(machine)
        write(machine / f"lib/modules/{kernel}/updates/dkms/nvidia.ko.xz")

    return change


def nouveau(machine: Path) -> None:
    without_driver(machine)
    write(machine / "proc/modules", "nouveau 1 0 - Live 0x0\n")


def older_libraries(machine: Path) -> None:
    library = machine / "usr/lib64/libcuda.so.1"
    library.unlink()
    library.symlink_to("libcuda.so.535.104.05")
    write(machine / "usr/lib64/libcuda.so.535.104.05", "ELF")


def older_cdi(machine: Path) -> None:
    write(
        machine / "etc/cdi/nvidia.yaml",
        'kind: "nvidia.com/gpu"\nhostPath: /usr/lib64/libcuda.so.535.104.05',
    )


def no_toolkit(machine: Path) -> None:
    (machine / "usr/bin/nvidia-ctk").unlink()
    (machine / "etc/cdi/nvidia.yaml").unlink()


def imex(*, runs: bool, channel: int | None) -> Change:
    def change(machine: Path) -> None:
        write(machine / "etc/nvidia-imex/nodes_config.cfg", "# nodes\n10.0.0.1\n10.0.0.2\n")
        if runs:
            write(machine / "proc/88/comm", "nvidia-imex\n")
        if channel is not None:
            write(machine / "dev/nvidia-caps-imex-channels/channel0", mode=channel)

    return change


@pytest.mark.parametrize(
    ("change", "kind", "message", "fix"),
    [
        (without_driver, "driver", "is not installed", "nvidia-driver"),
        (nouveau, "driver", "nouveau has the GPUs", "blacklist nouveau"),
        (built_for("6.1.0-20"), "driver", "for kernel 6.1.0-20, and not loaded", "modprobe nvidia"),
        (built_for("6.1.0-18"), "driver", "for kernel 6.1.0-18, and 6.1.0-20 runs", "dkms autoinstall"),
        (lambda at: write(at / "proc/modules", "nvidia 1 0"), "driver", "nvidia_uvm", "modprobe nvidia-uvm"),
        (lambda at: (at / "usr/lib64/libcuda.so.1").unlink(), "library", "libcuda.so.1", "ldconfig"),
        (older_libraries, "library", "driver 535.104.05, the loaded module of 550.54.15", "restart"),
        (lambda at: (at / "dev/nvidia1").unlink(), "device-file", "/dev/nvidia1", "`nvidia-modprobe -c 1`"),
        (lambda at: (at / "dev/nvidia-uvm").unlink(), "device-file", "/dev/nvidia-uvm", "nvidia-modprobe -u"),
        (lambda at: (at / "dev/nvidiactl").chmod(0o600), "permission", "mode 0600", "NVreg_DeviceFileMode"),
        (lambda at: (at / "dev/nvidia0").chmod(0o660), "permission", "user 1000 may not", "usermod -aG"),
        (lambda at: (at / "proc/77/comm").unlink(), "fabric-manager", "error 802", f"exactly version {OWN}"),
        (imex(runs=False, channel=0o666), "imex", "does not run", "systemctl enable --now nvidia-imex"),
        (imex(runs=True, channel=None), "imex", "no channel", "mknod"),
        (imex(runs=True, channel=0o600), "imex", "user 1000 may not use", "chmod 666"),
        (no_toolkit, "container-runtime", "not installed", "nvidia-container-toolkit"),
        (
            lambda at: write(at / "etc/containerd/config.toml", "version = 3\n"),
            "container-runtime",
            "settings of containerd",
            "nvidia-ctk runtime configure --runtime=containerd",
        ),
        (older_cdi, "cdi", "made for driver 535.104.05", "nvidia-ctk cdi generate"),
    ],
)
def test_a_fault_is_named_with_its_fix(
    machine: Path, change: Change, kind: str, message: str, fix: str
) -> None:
    change(machine)

    (finding,) = (one for one in found_on(machine) if one.kind == kind)

    assert message in finding.message
    assert fix in finding.fix


def test_nothing_but_what_is_wrong_is_told(machine: Path) -> None:
    (machine / "dev/nvidia1").unlink()
    assert [one.kind for one in found_on(machine)] == ["device-file"]


def test_root_and_members_of_the_group_may_use_files_that_others_may_not(machine: Path) -> None:
    file = machine / "dev/nvidia0"
    file.chmod(0o660)
    group = file.stat().st_gid

    def kinds(user: User) -> set[str]:
        return {one.kind for check in checks(read_gpu_facts(machine, user)) for one in check.findings}

    assert kinds(User(0, frozenset())) == set()
    assert kinds(User(1000, frozenset({group}))) == set()
    assert kinds(User(1000, frozenset({group + 1}))) == {"permission"}


def test_a_container_is_told_how_it_is_given_gpus(machine: Path) -> None:
    write(machine / ".dockerenv")
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (machine / "dev" / name).unlink()
    (machine / "proc/77/comm").unlink()  # a container sees no service of its host

    (finding,) = found_on(machine)

    assert (finding.kind, finding.severity) == ("device-file", "fault")
    assert "this container was not given" in finding.message
    assert "docker run --gpus all" in finding.fix


def test_labels_are_held_against_the_table_where_selinux_is_on(machine: Path) -> None:
    write(machine / "sys/fs/selinux/enforce", "1")

    (finding,) = found_on(machine)  # files of the test have no labels

    assert finding.kind == "selinux"
    assert "restorecon -v /dev/nvidia-uvm /dev/nvidia0" in finding.fix


def test_what_nvml_says_comes_last(machine: Path) -> None:
    facts: GpuFacts = replace(read_gpu_facts(machine, USER), asked=2, lost=("GPU-1",))
    (check,) = (check for check in checks(facts) if check.name == "NVML")
    assert (check.found, check.status) == ("1 of 2 lost", "fault")
    assert "GPU-1 does not answer" in check.findings[0].message
    assert "Xid" in check.findings[0].fix
