"""Run a container of an image by an OCI runtime (runc), inside the namespaces of the pod.

The runtime is called from a helper process that has a mount namespace of its own, in which the layers of
the image and the sources of all bind mounts are put in place. It starts the program detached and ends; the
program then becomes a child of the shim, which is the reaper of its descendants, and is watched as any other.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gangline.cluster.node.shim import rootfs, syscalls

_CGROUPS = Path("/sys/fs/cgroup")
_NAMESPACES = {"net": "network", "uts": "uts", "ipc": "ipc"}


@contextmanager
def outside(first_process: int) -> Iterator[None]:
    """Fork here, and the child is no member of the pod's process namespace: the runtime reads ``/proc``."""
    if not first_process:
        yield
        return
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    pods = os.open(f"/proc/{first_process}/ns/pid", os.O_RDONLY)
    try:
        syscalls.setns(own, syscalls.CLONE_NEWPID)
        try:
            yield
        finally:
            syscalls.setns(pods, syscalls.CLONE_NEWPID)
    finally:
        os.close(own)
        os.close(pods)


def run(config: dict[str, Any], spec: dict[str, Any], first_process: int, console: int = -1) -> int:
    """Start the program of a container; return its process id. The caller is the helper process.

    With ``console`` the program gets a terminal, whose other side is sent over that socket.

    Raises:
        OSError: the runtime refuses, with its words.
    """
    shim = os.getppid()
    folder = Path(spec["folder"])
    oci = spec["oci"]
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", flags=syscalls.MS_SLAVE | syscalls.MS_REC)
    root = folder / "root"
    root.mkdir(parents=True, exist_ok=True)
    whole = oci["config"]
    whole["mounts"].append(_bind(Path(config["folder"]) / "dev" / "shm", "/dev/shm", read_only=False))
    whole["mounts"] += _place_sources(config, spec, folder / "mounts")
    rootfs.mount_layers(spec["root"]["layers"], root, folder)
    whole["root"]["path"] = str(root)
    whole["linux"]["namespaces"] = [{"type": "mount"}]
    for name in config["namespaces"]:
        if name in _NAMESPACES:
            whole["linux"]["namespaces"].append(
                {"type": _NAMESPACES[name], "path": f"/proc/{shim}/ns/{name}"}
            )
    if first_process:
        pid_namespace = {"type": "pid", "path": f"/proc/{first_process}/ns/pid"}
        whole["linux"]["namespaces"].append(pid_namespace)
    whole["process"]["terminal"] = console >= 0
    add_devices(whole["linux"], config["devices"])
    (folder / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    if console < 0:
        return _call(oci, folder)
    # The runtime connects to a path: one through a descriptor, for a socket's path is short.
    place = os.open(folder, os.O_PATH)
    path = f"/proc/{os.getpid()}/fd/{place}/console.sock"
    (folder / "console.sock").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(fileno=os.dup(console)) as receiver:
        listener.bind(path)
        listener.listen(1)
        pid = _call(oci, folder, "--console-socket", path)
        with listener.accept()[0] as connection:
            _, descriptors, _, _ = socket.recv_fds(connection, 4096, 1)
        socket.send_fds(receiver, [b"0"], descriptors)
    return pid


def control_groups(pid: int) -> list[str]:
    """Return the files that take a further process into the control groups of a container; Linux."""
    files = []
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return []  # it has ended
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for mount in (controllers.removeprefix("name=") or "unified", ""):
            file = _CGROUPS / mount / path.lstrip("/") / "cgroup.procs"
            if path != "/" and file.exists():
                files.append(str(file))
                break
    return files


def _call(oci: dict[str, Any], folder: Path, *options: str) -> int:
    log, pid_file = folder / "oci.log", folder / "pid"
    for path in (log, pid_file):
        path.unlink(missing_ok=True)
    words = [oci["program"], "--root", oci["state"], "--log", str(log), "--log-format", "json"]
    words += ["run", "--detach", "--bundle", str(folder), "--pid-file", str(pid_file), *options, oci["id"]]
    pid = os.posix_spawn(words[0], words, {"PATH": os.defpath})
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise OSError(0, _error_in(log) or f"{words[0]} failed")
    return int(pid_file.read_text(encoding="ascii"))


def _error_in(log: Path) -> str:
    """Return the last error in the runtime's log."""
    found = ""
    try:
        for line in log.read_text(encoding="utf-8").splitlines():
            item = json.loads(line)
            if item.get("level") in ("error", "fatal"):
                found = str(item.get("msg", ""))
    except (OSError, ValueError):
        pass
    return found.removeprefix("runc run failed: ").removeprefix("unable to start container process: ")


def _place_sources(config: dict[str, Any], spec: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Bind what was opened and checked, so that no link can be changed before the runtime follows it."""
    folder.mkdir(exist_ok=True)
    mounts = []
    for index, item in enumerate(spec["root"]["mounts"]):
        descriptor = rootfs.open_source(item)
        place = folder / str(index)
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        if is_directory:
            place.mkdir(exist_ok=True)
        else:
            place.touch()
        syscalls.bind(f"/proc/self/fd/{descriptor}", str(place))
        os.close(descriptor)
        mounts.append(_bind(place, item["target"], read_only=item["read_only"]))
    return mounts


def _bind(source: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    options = ["rbind", "rprivate", "ro" if read_only else "rw"]
    return {"source": str(source), "destination": target, "type": "bind", "options": options}


def add_devices(linux: dict[str, Any], paths: list[str]) -> None:
    """Give the container the device nodes that the pod was given."""
    for path in paths:
        names = [str(one) for one in Path(path).iterdir()] if Path(path).is_dir() else [path]
        for name in names:
            try:
                found = os.stat(name)  # noqa: PTH116 - as short as what it reads
            except OSError:
                continue  # it went with its driver
            kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
            number = {"major": os.major(found.st_rdev), "minor": os.minor(found.st_rdev)}
            node = {"path": name, "type": kind, "fileMode": 0o666, "uid": 0, "gid": 0}
            linux["devices"].append(node | number)
            linux["resources"]["devices"].append({"allow": True, "type": kind, "access": "rw"} | number)
