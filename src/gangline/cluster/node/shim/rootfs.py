"""What a pod and its containers see of the machine's files: mounts, built inside private mount namespaces.

The pod (``prepare_pod``, once, in the shim): ``/dev`` with its own ``shm`` and ``pts`` and the files of its
own GPUs, volumes in memory.
A container (``enter_root``, in the child before exec): the host's files below a writable overlay, private
``/tmp`` and ``/run``, folders hidden by an empty one, and the volumes. Every mount vanishes with the last
process of the pod: nothing is ever mounted where the host sees it.

Sources are opened before the root changes and targets resolved after it, so that no symbolic link of the new
root can lead a mount to the host's files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.cluster.node.shim import syscalls as sys

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_PATTERNS = ("dri", "kfd", "infiniband", "fuse")
_READ_ONLY_IN_PROC = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi")
"""Through these a process of root could stop or reconfigure the machine: its user id is all they ask for."""
_EMPTY_IN_PROC = ("kcore", "kmsg", "keys", "timer_list", "sched_debug", "scsi")
_OWN_MOUNTS = ("proc", "sys", "dev", "tmp", "run")


def prepare_pod(config: dict[str, Any]) -> None:
    """Mount what all containers of the pod share; the caller is in the pod's own mount namespace."""
    sys.mount("none", "/", flags=sys.MS_SLAVE | sys.MS_REC)
    for volume in config["tmpfs"]:
        size = f",size={volume['size_bytes']}" if volume["size_bytes"] else ""
        options = f"{volume.get('options', 'mode=1777')}{size}"
        sys.mount("tmpfs", volume["path"], "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, options)
    _make_dev(Path(config["folder"]) / "dev", config["shm_bytes"], config["devices"])


def show_files(binds: list[list[str]]) -> None:
    """Show other contents of some of the machine's files; the caller is in a mount namespace of its own."""
    sys.mount("none", "/", flags=sys.MS_SLAVE | sys.MS_REC)
    for source, target in binds:
        if Path(target).exists():
            sys.bind(source, os.path.realpath(target))


def _make_dev(dev: Path, shm_bytes: int, devices: list[str]) -> None:
    dev.mkdir(exist_ok=True)
    sys.mount("tmpfs", str(dev), "tmpfs", sys.MS_NOSUID, "mode=0755,size=1m")
    names = [Path("/dev", name) for name in _DEVICES]
    for pattern in _DEVICE_PATTERNS:
        names += Path("/dev").glob(pattern)
    names += map(Path, devices)
    for source in names:
        target = dev / source.name
        if not source.exists():
            continue
        if source.is_dir():
            target.mkdir()
        else:
            target.touch()
        sys.bind(str(source), str(target))
    (dev / "termination-log").touch()
    for name, link in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        (dev / name).symlink_to(f"/proc/self/fd{link}")
    (dev / "shm").mkdir()
    size = f",size={shm_bytes}" if shm_bytes else ""
    sys.mount("shm", str(dev / "shm"), "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, f"mode=1777{size}")
    (dev / "pts").mkdir()
    try:
        sys.mount("devpts", str(dev / "pts"), "devpts", sys.MS_NOSUID, "newinstance,ptmxmode=0666,mode=0620")
    except OSError:
        sys.bind("/dev/pts", str(dev / "pts"))
    (dev / "ptmx").symlink_to("pts/ptmx")


def enter_root(config: dict[str, Any], spec: dict[str, Any]) -> list[str]:
    """Build the container's root in this (private) mount namespace and move into it.

    Returns:
        What the kernel refused and what was done instead, for the log.

    Raises:
        OSError: a source is missing, or a target cannot be made.
    """
    root = spec["root"]
    notes: list[str] = []
    folder = Path(spec["folder"])
    sources = [(open_source(item), item) for item in root["mounts"]]
    shown = [(os.open(path, os.O_PATH), path) for path in root["show"] if Path(path).exists()]
    others = [(os.open(path, os.O_PATH), path) for path in root["host_mounts"] if Path(path).is_dir()]
    dev = os.open(str(Path(config["folder"]) / "dev"), os.O_PATH)
    host_sys = os.open("/sys", os.O_PATH)
    target = folder / "root"
    target.mkdir(parents=True, exist_ok=True)
    if root["whole"]:
        mount_layers(root["layers"], target, folder)
    else:
        _mount_root(target, folder, set(root["hide"]), notes)
        for layer in root["layers"]:
            _lay_over(Path(layer), target, folder)
    for name in _OWN_MOUNTS:
        (target / name).mkdir(exist_ok=True)
    try:
        sys.mount("proc", str(target / "proc"), "proc", sys.MS_NOSUID | sys.MS_NODEV | sys.MS_NOEXEC)
    except OSError as error:  # where parts of the machine's own are covered, as in a container
        notes.append(f"/proc shows all processes: {error.strerror}")
        sys.bind("/proc", str(target / "proc"))
    old_root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir(target)
    sys.pivot_root(".", ".")
    for descriptor, path in others:
        _bind_descriptor(descriptor, path, read_only=True, directory=True)
    for path in root["hide"]:
        if Path(path).is_dir():
            sys.mount("tmpfs", path, "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, "mode=0755")
    if not root["whole"]:  # an image brings its own, perhaps with files in them
        sys.mount("tmpfs", "/tmp", "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, "mode=1777")
        sys.mount("tmpfs", "/run", "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, "mode=0755")
    _bind_descriptor(dev, "/dev", read_only=False, directory=True)
    _mount_sys(host_sys)
    if spec["capabilities"] is not None:
        _protect_proc(notes, writable=root.get("writable_in_proc", ()))
    for descriptor, path in shown:
        _bind_descriptor(descriptor, path, read_only=True, directory=_is_directory(descriptor))
    for descriptor, item in sources:
        _bind_descriptor(
            descriptor, item["target"], read_only=item["read_only"], directory=_is_directory(descriptor)
        )
    notes += _show_again(shown, [Path(item["target"]) for _, item in sources])
    os.fchdir(old_root)
    sys.unmount(".")
    os.chdir("/")
    if root.get("read_only"):
        Path(spec["cwd"]).mkdir(parents=True, exist_ok=True)
        _make_read_only([path for _, path in shown] + [item["target"] for _, item in sources])
    for descriptor in (old_root, dev, host_sys, *(fd for fd, _ in (*sources, *shown, *others))):
        os.close(descriptor)
    return notes


def _show_again(shown: list[tuple[int, str]], targets: list[Path]) -> list[str]:
    """Show what a volume covers of the folders that every program here needs; return those it cannot show.

    A volume over `/tmp` or a home would else take Python away from a cluster that is installed below it.
    """
    notes = []
    for descriptor, path in shown:
        if any(Path(path).is_relative_to(target) for target in targets):
            try:
                _bind_descriptor(descriptor, path, read_only=True, directory=_is_directory(descriptor))
            except OSError as error:  # a volume that may not be written takes no folder to show it at
                notes.append(f"a volume covers {path}, where programs of this machine are: {error.strerror}")
    return notes


def _make_read_only(others: Sequence[str]) -> None:
    """Make the container's own files read-only, which are all mounts but devices and ``others``."""
    kept = ("/dev", "/proc", "/sys", *others)
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        place = line.split()[4]
        if any(Path(place).is_relative_to(other) for other in kept):
            continue
        try:
            sys.make_read_only(place)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):  # it is covered by a mount above it
                raise


def mount_layers(layers: list[str], target: Path, folder: Path) -> None:
    """Mount folders over one another, the first on top, with a writable one above them."""
    _overlay([Path(layer) for layer in layers], target, folder, "root")


def _lay_over(layer: Path, target: Path, folder: Path) -> None:
    """Show the folders of a layer above those of the root, one mount each; what is private stays so."""
    places = []
    for entry in layer.iterdir():
        place = target / entry.name
        if entry.is_symlink() or not entry.is_dir() or entry.name in _OWN_MOUNTS:
            continue
        if place.is_symlink():  # as /bin is to usr/bin
            place = target / str(place.readlink()).lstrip("/")
        place.mkdir(exist_ok=True)
        places.append((place, entry))
    for place, entry in sorted(places, key=lambda pair: len(pair[0].parts)):
        _overlay([entry, place], place, folder, f"over-{entry.name}")


def _mount_root(target: Path, folder: Path, hidden: set[str], notes: list[str]) -> None:
    try:
        _overlay([Path("/")], target, folder, "root")
        return
    except OSError:
        # A user namespace may not lay an overlay over a root with mounts in it: one for each top folder then.
        sys.mount("tmpfs", str(target), "tmpfs", 0, "mode=0755")
    for entry in Path("/").iterdir():
        place = target / entry.name
        if entry.is_symlink():
            place.symlink_to(entry.readlink())
        elif not entry.is_dir():
            continue
        else:
            place.mkdir()
            if entry.name not in _OWN_MOUNTS and str(entry) not in hidden:
                _show_folder(entry, place, folder, notes)


def _show_folder(entry: Path, place: Path, folder: Path, notes: list[str]) -> None:
    try:
        _overlay([entry], place, folder, entry.name)
    except OSError:
        try:
            sys.bind(str(entry), str(place), read_only=True)
        except OSError as error:
            notes.append(f"{entry} is not shown: {error.strerror}")


def _overlay(lowers: list[Path], target: Path, folder: Path, name: str) -> None:
    upper, work = folder / "upper" / name, folder / "work" / name
    upper.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    upper.chmod(stat.S_IMODE(lowers[0].stat().st_mode))
    if any(character in f"{path}" for path in (*lowers, folder) for character in ",:\\"):
        raise OSError(22, "a path with a comma, colon or backslash cannot be part of an overlay")
    # Relative to what they share: all options together may have 4 KiB, and an image may have 100 layers.
    shared = os.path.commonpath(lowers) if len(lowers) > 1 else "/"
    names = ":".join(os.path.relpath(path, shared) for path in lowers) if len(lowers) > 1 else str(lowers[0])
    options = f"lowerdir={names},upperdir={upper},workdir={work}"
    os.chdir(shared)
    try:
        sys.mount("overlay", str(target), "overlay", 0, options)
    except OSError:
        sys.mount("overlay", str(target), "overlay", 0, f"{options},userxattr")
    finally:
        os.chdir("/")


def _mount_sys(host_sys: int) -> None:
    flags = sys.MS_RDONLY | sys.MS_NOSUID | sys.MS_NODEV | sys.MS_NOEXEC
    try:
        sys.mount("sysfs", "/sys", "sysfs", flags)
    except OSError:  # a user namespace on the machine's network may not
        _bind_descriptor(host_sys, "/sys", read_only=True, directory=True)


def _protect_proc(notes: list[str], *, writable: Sequence[str] = ()) -> None:
    kept = [(os.open(path, os.O_PATH), path) for path in writable if Path(path).exists()]
    for name in (*_READ_ONLY_IN_PROC, *_EMPTY_IN_PROC):
        place = Path("/proc", name)
        try:
            if not place.exists():
                continue
            if name in _READ_ONLY_IN_PROC:
                sys.bind(str(place), str(place), read_only=True)
            elif place.is_dir():
                sys.mount("tmpfs", str(place), "tmpfs", sys.MS_RDONLY, "mode=0555")
            else:
                sys.bind("/dev/null", str(place), read_only=True)
        except OSError as error:
            notes.append(f"{place} is not protected: {error.strerror}")
    for descriptor, path in kept:
        _bind_descriptor(descriptor, path, read_only=False, directory=False)
        os.close(descriptor)


def open_source(item: dict[str, Any]) -> int:
    """Open what a mount shows; ``inside`` (its subPath) may lead through links, but not out of the volume.

    What was opened is checked, not its path: the containers of the pod may change links at any time.
    """
    volume = os.open(item["source"], os.O_PATH)
    if not item.get("inside"):
        return volume
    try:
        found = os.open(item["inside"], os.O_PATH, dir_fd=volume)
        whole, part = (Path(f"/proc/self/fd/{fd}").readlink() for fd in (volume, found))
    finally:
        os.close(volume)
    if not part.is_relative_to(whole):
        os.close(found)
        raise OSError(errno.EPERM, f"subPath `{item['inside']}` leads out of the volume")
    return found


def _is_directory(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def _bind_descriptor(descriptor: int, target: str, *, read_only: bool, directory: bool) -> None:
    place = Path(target)
    if directory:
        place.mkdir(parents=True, exist_ok=True)
    elif not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():  # as /etc/resolv.conf is one into the machine's /run
            place.unlink()
        place.touch()
    sys.bind(f"/proc/self/fd/{descriptor}", target, read_only=read_only)
