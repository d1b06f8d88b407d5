"""A real Kubernetes with nodes on one machine: control plane, CoreDNS, kubelets, containerds.

    python tests/kubernetes/nodes.py [--nodes N] [--crds] [IMAGE.tar...]

starts one, prints its kubeconfig and stops it on Ctrl-C. It needs root. Nodes, their pods and this machine
share one bridge in a namespace of its own. This machine has one veth to it, ``gltN``, with its first address.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "images"))

from control_plane import ControlPlane, NotBuilt, die_with_parent, programs, require
from node import (
    PAUSE_IMAGE,
    START_LIMIT_S,
    Node,
    Sandbox,
    make_cgroup,
    missing,
    remove_cgroups,
    run,
)
from pack import pack

NETWORKS = range(200, 220)
"""Second numbers of the networks 10.N.0.0/16 that may be used."""

API_ADDRESS = "10.0.0.1"
"""Cluster IP of the service `kubernetes`."""

PREFIX = "gangline-nodes-"
_POLL_S = 0.05


class Nodes:
    """A cluster with nodes; a context manager that starts and stops it.

    Start it from the main thread: the kernel ends its processes with the thread that made them.

    Args:
        count: nodes.
        images: tars of images, put on every node.
        crds: created before the controllers start.
        apiserver_options: more options of kube-apiserver.

    Attributes:
        plane: the control plane.
        names: of the nodes.
    """

    def __init__(
        self,
        count: int = 2,
        *,
        images: Sequence[Path] = (),
        crds: Sequence[dict[str, Any]] = (),
        apiserver_options: Sequence[str] = (),
    ) -> None:
        self._images = list(images)
        self._crds = crds
        self._options = apiserver_options
        self.names = [f"node{index + 1}" for index in range(count)]
        self._top = f"{PREFIX}{os.getpid()}"
        self._folder = Path()
        self._hub: Sandbox | None = None
        self._nodes: list[Node] = []
        self._beside: list[subprocess.Popen[bytes]] = []
        self.plane: ControlPlane | None = None

    def __enter__(self) -> Nodes:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def node(self, name: str) -> Node:
        """Return one of the nodes."""
        return self._nodes[self.names.index(name)]

    def lose(self, name: str) -> None:
        """End a node for good, as a machine that is switched off."""
        node = self.node(name)
        self._nodes.remove(node)
        self.names = [other for other in self.names if other != name]
        node.stop()

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig of an administrator."""
        assert self.plane
        return self.plane.kubeconfig

    def start(self) -> None:
        """Start everything and wait until all nodes are ready.

        Raises:
            NotBuilt: this machine lacks a program; the message names the package or the make target.
            RuntimeError: something does not come up; the message ends with its log.
        """
        if reason := missing():
            raise NotBuilt(reason)
        require(["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"])
        require(["coredns", "pause"])
        sweep()
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise

    def load(self, image: Path) -> None:
        """Put one more image on every node."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.load(image), self._nodes))

    def stop(self) -> None:
        """End all processes, and remove links, mounts, cgroups and files."""
        for node in self._nodes:
            node.stop()
        self._nodes.clear()
        for process in self._beside:
            process.kill()
            process.wait()
        self._beside.clear()
        if self.plane:
            self.plane.stop()
        if self._hub:
            self._hub.stop()
        remove_cgroups(self._top)
        if self._folder != Path():
            run("rm", "-rf", str(self._folder))  # thousands of files, which shutil takes its time for

    def logs(self) -> str:
        """Return the last lines of every node's programs."""
        return "\n".join(node.logs() for node in self._nodes)

    def _start_all(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self._top}-"))
        self._hub = Sandbox("--net")
        link, network = self._make_link()
        host = f"{network}.0.1"
        self.plane = ControlPlane(
            address=host,
            scheduler=True,
            crds=self._crds,
            apiserver_options=self._options,
            parent=self._folder,
        )
        self.plane.start()
        self._start_dns(host)
        self._start_relay(network)
        pause = self._pause_image()
        for index, name in enumerate(self.names, start=1):
            cgroup = f"/{self._top}/{name}"
            make_cgroup(cgroup)
            node = Node(
                name, self._folder / name, f"{network}.0.{10 + index}", f"{network}.{index}.0/24", cgroup
            )
            self._nodes.append(node)
            self._connect(node, link, network, index)
        for node in self._nodes:
            node.start(self.plane.kubeconfig, host, [pause])
        for image in self._images:
            self.load(image)
        self._wait_until_ready()

    def _make_link(self) -> tuple[str, str]:
        """Connect this machine with a new bridge; the first free name and network are taken."""
        assert self._hub
        for number in NETWORKS:
            link, network = f"glt{number}", f"10.{number}"
            routes = ["ip", "-4", "route", "show", "match", f"{network}.0.1"]
            known = subprocess.run(routes, capture_output=True, text=True, check=True).stdout.splitlines()
            if any(not line.startswith("default") for line in known):
                continue
            try:
                run(
                    "ip",
                    "link",
                    "add",
                    link,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    "machine",
                    "netns",
                    str(self._hub.pid),
                )
            except RuntimeError as error:
                if "exists" in str(error):
                    continue
                raise
            run("ip", "address", "add", f"{network}.0.1/24", "dev", link)
            run("ip", "link", "set", link, "up")
            self._hub.run("ip", "link", "add", "nodes", "type", "bridge")
            for name in ("machine", "nodes"):
                self._hub.run("ip", "link", "set", name, "up")
            self._hub.run("ip", "link", "set", "machine", "master", "nodes")
            return link, network
        raise RuntimeError(f"no network of 10.{NETWORKS.start}.0.0 to 10.{NETWORKS.stop - 1}.0.0 is free")

    def _connect(self, node: Node, link: str, network: str, index: int) -> None:
        """Plug a node into the bridge and tell everybody the way to its pods."""
        assert self._hub
        pid = str(node.sandbox.pid)
        self._hub.run("ip", "link", "add", node.name, "type", "veth", "peer", "name", "eth0", "netns", pid)
        self._hub.run("ip", "link", "set", node.name, "master", "nodes", "up")
        node.sandbox.run("ip", "link", "set", "lo", "up")
        node.sandbox.run("ip", "address", "add", f"{node.address}/24", "dev", "eth0")
        node.sandbox.run("ip", "link", "set", "eth0", "up")
        node.sandbox.run("ip", "route", "add", "default", "via", f"{network}.0.1")
        node.sandbox.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        node.sandbox.run("ip", "route", "add", API_ADDRESS, "via", f"{network}.0.2")
        self._hub.run("ip", "route", "add", f"{network}.{index}.0/24", "via", node.address)
        run("ip", "route", "add", f"{network}.{index}.0/24", "via", node.address, "dev", link)
        for other in range(1, len(self.names) + 1):
            if other != index:
                gateway = f"{network}.0.{10 + other}"
                node.sandbox.run("ip", "route", "add", f"{network}.{other}.0/24", "via", gateway)

    def _start_dns(self, address: str) -> None:
        corefile = self._folder / "Corefile"
        corefile.write_text(f"""\
cluster.local {{
  bind {address}
  errors
  kubernetes {{
    kubeconfig {self.kubeconfig} tests
    ttl 0
  }}
}}
. {{
  bind {address}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
""")
        self._run_beside("coredns", str(programs() / "coredns"), "-conf", str(corefile))

    def _start_relay(self, network: str) -> None:
        """Lead pods from the cluster IP of `kubernetes` to the API server; no other service is reached."""
        assert self._hub and self.plane
        for address in (f"{network}.0.2/24", f"{API_ADDRESS}/32"):
            self._hub.run("ip", "address", "add", address, "dev", "nodes")
        server, _, port = self.plane.server.removeprefix("https://").partition(":")
        relay = [sys.executable, str(Path(__file__).with_name("api_relay.py")), API_ADDRESS, "443"]
        self._run_beside("api-relay", *self._hub.enter(*relay, server, port))

    def _run_beside(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509
                start_new_session=True,
            )
        self._beside.append(process)

    def _pause_image(self) -> Path:
        root = self._folder / "pause"
        root.mkdir()
        shutil.copy2(programs() / "pause", root / "pause")
        image = self._folder / "pause.tar"
        pack(PAUSE_IMAGE, image, [root], command=["/pause"])
        return image

    def _wait_until_ready(self) -> None:
        assert self.plane
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            nodes = self.plane.request("/api/v1/nodes")["items"]
            ready = [node["metadata"]["name"] for node in nodes if _is_ready(node)]
            if sorted(ready) == sorted(self.names):
                return
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"only {ready} of {self.names} are ready:\n{self.logs()}")
            time.sleep(_POLL_S)


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not node["spec"].get("taints")


def sweep() -> None:
    """Remove cgroups and files of clusters whose process was killed; the kernel has seen to the rest."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            remove_cgroups(f"{PREFIX}{owner}")
            shutil.rmtree(path, ignore_errors=True)


def _stop_on_signal(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run a cluster until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", nargs="*", type=Path, metavar="IMAGE.tar", help="images for every node")
    parser.add_argument("--nodes", type=int, default=2, metavar="N", help="default 2")
    parser.add_argument("--crds", action="store_true", help="define MPIJobs and PodGroups")
    options = parser.parse_args()
    definitions: list[dict[str, Any]] = []
    if options.crds:
        from gangline.api.crds import crds, gang_crds

        definitions = [*crds(), *gang_crds()]
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background commands ignore the first
        signal.signal(number, _stop_on_signal)
    try:
        with Nodes(options.nodes, images=options.images, crds=definitions) as nodes:
            print(f"export KUBECONFIG={nodes.kubeconfig}", flush=True)
            signal.pause()
    except (NotBuilt, RuntimeError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
