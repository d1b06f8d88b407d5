"""containerd: a process of the cluster's own, started for its first image, ended with the node agent.

It has its root below the cluster's folder, no CRI plugin and no containers. ``$CONTAINERD_ADDRESS`` names
another one to use instead, as for ``ctr``; in both the images are those of the namespace ``gangline``, or of
``$CONTAINERD_NAMESPACE``.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from gangline.cluster.images.image import Image, chain_id
from gangline.cluster.images.image_map import tagged
from gangline.cluster.images.runtime.image_store import (
    PULL_TIMEOUT_S,
    RuntimeFailedError,
    make_image,
    run_command,
)
from gangline.cluster.paths import ClusterPaths

START_TIMEOUT_S = 15.0
END_TIMEOUT_S = 10.0
POLL_S = 0.02
NAMESPACE = "gangline"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "riscv64": "riscv64"}
_CONFIG = """version = 2
root = {root}
state = {state}
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
]

[grpc]
address = {address}
"""


class ContainerdStore:
    """See the module's text."""

    name = "containerd"

    def __init__(self, paths: ClusterPaths) -> None:
        self._folder = paths.state / "containerd"
        self._state = paths.run / "containerd"
        self._pid_file = self._folder / "pid"
        self._log = paths.log("containerd")
        self._given = os.environ.get("CONTAINERD_ADDRESS", "")
        self.address = self._given or str(paths.run / "containerd.sock")
        self._process: asyncio.subprocess.Process | None = None
        self._opening = asyncio.Lock()
        self._known: dict[str, Image] = {}

    @property
    def command(self) -> list[str]:
        """The start of a ``ctr`` line that a user can type too."""
        return ["ctr", "--address", self.address, "--namespace", containerd_namespace()]

    async def find(self, reference: str) -> Image | None:
        """Return the image if it is here and unpacked."""
        await self.open()
        name = tagged(reference)
        digest = await self._digest(name)
        if not digest:
            return None
        if digest not in self._known:
            self._known[digest] = await self._read(reference, digest)
        return self._known[digest]

    async def pull(self, reference: str) -> None:
        """Fetch and unpack the image."""
        await self.open()
        await run_command([*self.command, "images", "pull", tagged(reference)], timeout_s=PULL_TIMEOUT_S)

    async def close(self) -> None:
        """End the process that is the cluster's own."""
        if not self._given:
            await asyncio.to_thread(end_containerd, self._folder)
        if self._process is not None:
            await self._process.wait()

    # Images

    async def _digest(self, name: str) -> str:
        text = await run_command([*self.command, "images", "list", f"name=={name}"])
        rows = [line.split() for line in text.splitlines()[1:]]
        return next((row[2] for row in rows if len(row) > 2 and row[0] == name), "")

    async def _read(self, reference: str, digest: str) -> Image:
        manifest = await self._content(digest)
        for _ in range(2):  # an index may hold an index
            if "manifests" in manifest:
                manifest = await self._content(_of_this_machine(manifest, reference))
        config = await self._content(manifest["config"]["digest"])
        chain = chain_id(config["rootfs"]["diff_ids"])
        return make_image(reference, await self._layers(chain), config.get("config") or {})

    async def _content(self, digest: str) -> Any:
        return json.loads(await run_command([*self.command, "content", "get", digest]))

    async def _layers(self, chain: str) -> list[str]:
        """Return the folders of a snapshot; a view of it keeps them from being collected as garbage."""
        view = f"gangline-{chain}"
        try:
            await run_command([*self.command, "snapshots", "view", view, chain])
        except RuntimeFailedError as error:
            if "already exists" not in str(error):
                raise
        text = await run_command([*self.command, "snapshots", "mounts", "/mnt", view])
        return layers_of_mount(text)

    # The process

    async def open(self) -> None:
        """Start containerd unless it answers."""
        async with self._opening:
            if self._process is not None and self._process.returncode is None:
                return
            if await self._answers():
                return
            if self._given:
                raise RuntimeFailedError(f"no containerd answers at {self._given} (CONTAINERD_ADDRESS)")
            await self._start()

    async def _answers(self) -> bool:
        if not Path(self.address).exists():
            return False
        try:
            await run_command([*self.command, "version"], timeout_s=5.0)
        except RuntimeFailedError:
            return False
        return True

    async def _start(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = self._folder / "config.toml"
        places = {"root": self._folder / "root", "state": self._state, "address": self.address}
        text = _CONFIG.format(**{name: json.dumps(str(path)) for name, path in places.items()})
        config.write_text(text, encoding="utf-8")
        with self._log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    "containerd",
                    "--config",
                    str(config),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise RuntimeFailedError(f"containerd: {error.strerror}") from error
        self._pid_file.write_text(f"{self._process.pid}\n", encoding="ascii")
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await self._answers():
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeFailedError(f"containerd did not start; its log is {self._log}")
            await asyncio.sleep(POLL_S)


def wait_containerd(paths: ClusterPaths) -> None:
    """Wait until the cluster's containerd listens, at most 15 s; whoever uses it is told if it does not."""
    store = ContainerdStore(paths)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not Path(store.address).exists() and time.monotonic() < deadline:
        time.sleep(POLL_S)


def containerd_namespace() -> str:
    """Return the namespace of containerd in which images are looked for."""
    return os.environ.get("CONTAINERD_NAMESPACE") or NAMESPACE


def end_containerd(folder: Path) -> bool:
    """End the containerd of a cluster, by its process id; True if one ran. Blocks up to 10 s.

    Args:
        folder: what the store keeps below the cluster's folder.
    """
    try:
        pid = int((folder / "pid").read_text(encoding="ascii"))
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return False
    if os.fsencode(folder / "config.toml") not in words:
        return False  # the number has gone to another process
    for number, timeout_s in ((signal.SIGTERM, END_TIMEOUT_S), (signal.SIGKILL, 2.0)):
        deadline = time.monotonic() + timeout_s
        try:
            os.kill(pid, number)
            while time.monotonic() < deadline:
                if b"\nState:\tZ" in Path(f"/proc/{pid}/status").read_bytes():
                    break
                time.sleep(POLL_S)
            else:
                continue
        except (ProcessLookupError, FileNotFoundError):
            pass
        break
    (folder / "pid").unlink(missing_ok=True)
    shutil.rmtree(folder / "state", ignore_errors=True)
    return True


def layers_of_mount(text: str) -> list[str]:
    """Return the folders, the top one first, of what ``ctr snapshots mounts`` prints.

    Raises:
        RuntimeFailedError: it is neither an overlay nor one folder.

    Example:
        >>> layers_of_mount("mount -t overlay overlay /mnt -o index=off,lowerdir=/s/2/fs:/s/1/fs")
        ['/s/2/fs', '/s/1/fs']
    """
    words = text.split()
    kind = words[words.index("-t") + 1] if "-t" in words else ""
    options = (words[words.index("-o") + 1] if "-o" in words else "").split(",")
    if kind == "overlay":
        lower = next((option.partition("=")[2] for option in options if option.startswith("lowerdir=")), "")
        if lower:
            return lower.split(":")
    if kind == "bind" or "rbind" in options or "bind" in options:
        return [words[words.index("-t") + 2]]
    raise RuntimeFailedError(f"containerd's snapshotter makes no folders that can be shared: {text.strip()}")


def _of_this_machine(index: dict[str, Any], reference: str) -> str:
    machine = os.uname().machine
    wanted = _MACHINES.get(machine, machine)
    for item in index["manifests"]:
        platform = item.get("platform") or {}
        if platform.get("architecture", wanted) == wanted and platform.get("os", "linux") == "linux":
            return str(item["digest"])
    raise RuntimeFailedError(f'image "{reference}" is not made for linux/{wanted}')
