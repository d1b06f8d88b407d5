"""One node of a real Kubernetes for tests: containerd and kubelet in namespaces of their own.

The first process of a node's PID namespace is ``pause``. When it ends, or whoever started it is killed, the
kernel ends every process of the node, takes its network away and forgets its mounts: nothing has to be found
again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from control_plane import die_with_parent, programs

START_LIMIT_S = 60.0
_POLL_S = 0.05
PAUSE_IMAGE = "localhost/gangline-tests-pause:1"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CGROUPS = Path("/sys/fs/cgroup")

PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""What a node needs of the machine, with the Debian package that has it."""


def missing() -> str:
    """Return why this machine cannot have nodes, or an empty string."""
    if os.geteuid() != 0:
        return "real nodes need root"
    packages = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    if not any((folder / "bridge").exists() for folder in CNI_FOLDERS):
        packages.add("containernetworking-plugins")
    if packages:
        return f"real nodes need the package {', '.join(sorted(packages))}"
    namespaces = ["unshare", "--pid", "--fork", "--mount", "--net", "true"]
    if subprocess.run(namespaces, capture_output=True, check=False).returncode:
        return "real nodes need namespaces, and this process may not make them"
    if not all(os.access(hierarchy, os.W_OK) for hierarchy in _hierarchies()):
        return f"real nodes need cgroups that can be written, and {CGROUPS} is read-only"
    return ""


class Sandbox:
    """A process that holds namespaces which other processes are started in.

    Args:
        kinds: options of ``unshare``: ``--net``, ``--mount``, ``--pid``.
    """

    def __init__(self, *kinds: str) -> None:
        proc = ["--mount-proc"] if "--pid" in kinds else []
        self._kinds = kinds
        self._unshare = subprocess.Popen(
            ["unshare", "--fork", "--kill-child", *kinds, *proc, str(programs() / "pause")],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,  # noqa: PLW1509
            start_new_session=True,  # Ctrl-C is for the tests, which end it in order
        )
        self.pid = self._first_process()

    def _first_process(self) -> int:
        """Wait until ``pause`` runs, so until /proc and all else is as it stays; return its process id."""
        unshare = self._unshare.pid
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            if self._unshare.poll() is not None:
                assert self._unshare.stderr
                said = self._unshare.stderr.read().decode(errors="replace")
                raise RuntimeError(f"unshare {' '.join(self._kinds)}: {said.strip()}")
            for child in Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split():
                if Path(f"/proc/{child}/comm").read_text().strip() == "pause":
                    return int(child)
            time.sleep(_POLL_S)
        raise RuntimeError("unshare does not get ready")

    def enter(self, *command: str) -> list[str]:
        """Return the command line that runs a command inside."""
        return ["nsenter", f"--target={self.pid}", *self._kinds, *command]

    def run(self, *command: str) -> None:
        """Run a command inside to its end."""
        run(*self.enter(*command))

    def stop(self) -> None:
        """End everything inside; the kernel has done so when this returns."""
        try:
            os.kill(self.pid, 9)
        except ProcessLookupError:
            pass
        self._unshare.communicate()


class Node:
    """A kubelet and its containerd.

    Attributes:
        name: of the Node object.
        address: of the node, in the network that the nodes share.
        sandbox: the node's namespaces.
        socket: of containerd, good from outside too.
    """

    def __init__(self, name: str, folder: Path, address: str, pods: str, cgroup: str) -> None:
        self.name, self.address = name, address
        self._folder, self._pods, self._cgroup = folder, pods, cgroup
        self.socket = folder / "containerd.sock"
        self._processes: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True)
        self.sandbox = Sandbox("--pid", "--mount", "--net")

    def start(self, kubeconfig: Path, dns: str, images: Sequence[Path]) -> None:
        """Start containerd, give it the images, start the kubelet. The network must be there."""
        self._separate_folders()
        self._write_files(dns)
        self._run(
            "containerd",
            str(own_containerd() or "containerd"),
            "--config",
            str(self._folder / "containerd.toml"),
        )
        self._wait_for_containerd()
        for image in images:
            self.load(image)
        self._kubeconfig = kubeconfig
        self._start_kubelet()

    def _start_kubelet(self) -> None:
        self._run(
            "kubelet",
            str(programs() / "kubelet"),
            f"--config={self._folder / 'kubelet.yaml'}",
            f"--kubeconfig={self._kubeconfig}",
            f"--root-dir={self._folder / 'kubelet'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        )

    def restart_kubelet(self) -> None:
        """Kill the kubelet, and start another."""
        kubelet = self._processes.pop()  # nsenter, whose child it is
        (pid,) = Path(f"/proc/{kubelet.pid}/task/{kubelet.pid}/children").read_text().split()
        os.kill(int(pid), 9)
        kubelet.wait()
        self._start_kubelet()

    @property
    def plugins(self) -> Path:
        """The folder of the kubelet's socket for device plugins, good from outside too."""
        return self._folder / "root/var/lib/kubelet/device-plugins"

    @property
    def kubelet_folder(self) -> Path:
        """The kubelet's own folder, the same from outside."""
        return self._folder / "kubelet"

    @property
    def cdi(self) -> Path:
        """Where the container runtime reads CDI files, good from outside too."""
        return self._folder / "root/run/cdi"

    def load(self, image: Path) -> None:
        """Give the node an image from a tar."""
        run("ctr", "--address", str(self.socket), "--namespace", "k8s.io", "images", "import", str(image))

    def stop(self) -> None:
        """End everything that runs on the node."""
        self.sandbox.stop()
        for process in self._processes:
            process.wait()

    def logs(self) -> str:
        """Return the last lines of containerd and kubelet."""
        parts = []
        for path in sorted(self._folder.glob("*.log")):
            parts += [f"--- {self.name} {path.name}", *path.read_text(errors="replace").splitlines()[-15:]]
        return "\n".join(parts)

    def _separate_folders(self) -> None:
        """Lay folders of the node's own over those where its programs write without being asked."""
        for place in ("run", "var/log", "var/lib"):
            own = self._folder / "root" / place
            own.mkdir(parents=True)
            self.sandbox.run("mount", "--bind", str(own), f"/{place}")

    def _write_files(self, dns: str) -> None:
        network = self._folder / "network"
        network.mkdir()
        bridge = {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self._folder / "addresses"),
                "ranges": [[{"subnet": self._pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        (network / "10.conflist").write_text(
            json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]})
        )
        plugins = next(folder for folder in CNI_FOLDERS if (folder / "bridge").exists())
        (self._folder / "containerd.toml").write_text(f"""\
version = 2
root = "{self._folder}/content"
state = "{self._folder}/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  {"enable_cdi = true" if own_containerd() else ""}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{network}"
""")
        resolv = self._folder / "resolv.conf"
        resolv.write_text(f"nameserver {dns}\n")
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._cgroup,
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "clusterDNS": [dns],
            "clusterDomain": "cluster.local",
            "resolvConf": str(resolv),
            "evictionHard": {"memory.available": "100Mi"},
            "localStorageCapacityIsolation": False,
            "syncFrequency": "10s",  # how soon a changed ConfigMap is seen in a pod
            "volumePluginDir": str(self._folder / "volume-plugins"),
        }
        (self._folder / "kubelet.yaml").write_text(json.dumps(kubelet))

    def _run(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self.sandbox.enter(*command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509
                start_new_session=True,
            )
        self._processes.append(process)

    def _wait_for_containerd(self) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        command = ["ctr", "--address", str(self.socket), "--connect-timeout", "1s", "version"]
        while subprocess.run(command, capture_output=True, check=False).returncode:
            if time.monotonic() > deadline_s or self._processes[-1].poll() is not None:
                raise RuntimeError(f"containerd does not serve:\n{self.logs()}")
            time.sleep(_POLL_S)


def own_containerd() -> Path | None:
    """Return the containerd that was built for the tests; Debian's, used without it, knows no CDI."""
    found = programs() / "containerd"
    return found if found.exists() else None


def make_cgroup(name: str) -> None:
    """Make a cgroup in every hierarchy that this machine has; the kubelet wants its own to be there."""
    for hierarchy in _hierarchies():
        folder = hierarchy
        for part in name.strip("/").split("/"):
            parent, folder = folder, folder / part
            folder.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):  # of version 1, where they start empty
                if (parent / file).exists() and hierarchy != CGROUPS:
                    (folder / file).write_text((parent / file).read_text())


def remove_cgroups(prefix: str) -> None:
    """Remove a cgroup and what is below it, once its last process is gone."""
    deadline_s = time.monotonic() + 10
    for hierarchy in _hierarchies():
        top = hierarchy / prefix.strip("/")
        while top.exists():
            try:
                for folder, _, _ in os.walk(top, topdown=False):
                    Path(folder).rmdir()
            except OSError:
                if time.monotonic() > deadline_s:
                    break
                time.sleep(_POLL_S)


def _hierarchies() -> list[Path]:
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]


def run(*command: str) -> None:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed; with what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-1000:]}")
