"""A real Kubernetes control plane, without nodes: etcd, kube-apiserver, controllers, if wanted a scheduler.

The programs come from ``KUBEBUILDER_ASSETS``, else from where ``build.sh`` puts them. Everything a control
plane writes is in one temporary folder, and exactly the processes that were started are ended; the kernel
ends them too when this process dies without a word. (Linux does so when the thread ends that started them:
start it from the main thread.)
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VERSION = "v1.35.4"
WITH_GANGS = "v1.37.1"
"""The release whose scheduler starts a PodGroup whole, with the gate ``GenericWorkload``."""

START_LIMIT_S = 60.0
START_TRIES = 3
"""A port that was free may be taken before its process binds it."""

TOKEN = "gangline-tests"
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05


class NotBuilt(Exception):
    """A program of the control plane is missing."""


def programs(release: str = VERSION) -> Path:
    """Return the folder with the programs of a release; it need not exist."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and release == VERSION:
        return Path(assets)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gangline" / "kubernetes" / release


def require(names: Sequence[str], release: str = VERSION) -> None:
    """Raise NotBuilt if one of these programs is missing."""
    folder = programs(release)
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        build = "make kubernetes" if release == VERSION else f"tests/kubernetes/build.sh {release}"
        raise NotBuilt(f"{', '.join(missing)} not in {folder}: run `{build}`")


class ControlPlane:
    """One control plane; a context manager that starts and stops it.

    Args:
        address: where the API server listens.
        scheduler: run kube-scheduler too.
        controllers: run the controller-manager too. Without it Jobs get no pods, owned objects stay, and
            pods need no service account.
        crds: created before the controllers start; the garbage collector learns of later ones only with time.
        sync: have etcd wait for the disk, as in production; tests need not.
        apiserver_options: more options of kube-apiserver.
        parent: where its temporary folder lies; the default is the system's.
        release: of Kubernetes.
        gates: feature gates to open in all of its programs.
    """

    def __init__(
        self,
        *,
        address: str = "127.0.0.1",
        scheduler: bool = False,
        controllers: bool = True,
        crds: Sequence[dict[str, Any]] = (),
        sync: bool = False,
        apiserver_options: Sequence[str] = (),
        parent: Path | None = None,
        release: str = VERSION,
        gates: Sequence[str] = (),
    ) -> None:
        self._address = address
        self._scheduler = scheduler
        self._controllers = controllers
        self._crds = crds
        self._sync = sync
        self._options = apiserver_options
        self._parent = parent
        self._release = release
        self._gates = [f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}"] if gates else []
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._apiserver: list[str] = []
        self._etcd = ("", "")
        self.folder = Path()
        self.kubeconfig = Path()
        self.server = ""

    def __enter__(self) -> ControlPlane:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by program."""
        return {name: process.pid for name, process in self._processes}

    def start(self) -> None:
        """Start everything and wait until it serves.

        Raises:
            NotBuilt: a program is missing.
            RuntimeError: it does not come up; the message ends with the log.
        """
        names = ["etcd", "kube-apiserver", *(["kube-controller-manager"] if self._controllers else [])]
        require([*names, *(["kube-scheduler"] if self._scheduler else [])], self._release)
        for left in reversed(range(START_TRIES)):
            self.folder = Path(tempfile.mkdtemp(prefix="gangline-kubernetes-", dir=self._parent))
            try:
                self._start_all()
                return
            except BaseException as error:
                self.stop()
                if not left or not isinstance(error, RuntimeError):
                    raise

    def stop(self) -> None:
        """End the processes and remove their files. Without mercy: nothing of them is kept."""
        for _, process in self._processes:
            process.kill()
        for _, process in self._processes:
            process.wait()
        self._processes.clear()
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def etcd(self) -> str:
        """Where etcd is asked; who writes there goes past the API server."""
        return self._etcd[0]

    def restart_apiserver(self) -> None:
        """Kill kube-apiserver, start it again at the same address and wait until it serves."""
        self._kill("kube-apiserver")
        self._start_apiserver()

    def restart_etcd(self) -> None:
        """Kill etcd, start it again with its files and wait until it serves."""
        self._kill("etcd")
        self._start_etcd()

    def _kill(self, name: str) -> None:
        process = dict(self._processes)[name]
        process.kill()
        process.wait()
        self._processes = [(other, one) for other, one in self._processes if one is not process]

    def _start_all(self) -> None:
        etcd_port, peer_port = free_ports(2)
        (port,) = free_ports(1, self._address)
        self.server = f"https://{self._address}:{port}"
        self._write_files()
        etcd = f"http://127.0.0.1:{etcd_port}"
        self._etcd = (etcd, f"http://127.0.0.1:{peer_port}")
        self._start_etcd()
        self._apiserver = self._apiserver_options(etcd, port)
        self._start_apiserver()
        certificate = self._certificate
        self.kubeconfig = self._write_kubeconfig(certificate)
        for crd in self._crds:
            self.request("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        for crd in self._crds:  # a kind is served a moment after its definition is there
            spec = crd["spec"]
            version = next(one["name"] for one in spec["versions"] if one["storage"])
            path = f"apis/{spec['group']}/{version}/{spec['names']['plural']}"
            self._wait("kube-apiserver", f"{self.server}/{path}", certificate)
        if self._scheduler:
            (scheduler_port,) = free_ports(1)
            self._run("kube-scheduler", *self._own_options("kube-scheduler", scheduler_port))
        if self._controllers:
            (manager_port,) = free_ports(1)
            self._run("kube-controller-manager", *self._controller_options(manager_port, certificate))
            self._wait(
                "kube-controller-manager",
                f"{self.server}/api/v1/namespaces/default/serviceaccounts/default",
                certificate,
            )

    def _start_etcd(self) -> None:
        client, peer = self._etcd
        self._run("etcd", *self._etcd_options(client, peer))
        self._wait("etcd", f"{client}/health")

    def _start_apiserver(self) -> None:
        self._run("kube-apiserver", *self._apiserver)
        self._wait("kube-apiserver", f"{self.server}/readyz", self._certificate)

    @property
    def _certificate(self) -> Path:
        return self.folder / "certificates" / "apiserver.crt"

    def _etcd_options(self, client: str, peer: str) -> list[str]:
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=error",
            *([] if self._sync else ["--unsafe-no-fsync"]),
        ]

    def _apiserver_options(self, etcd: str, port: int) -> list[str]:
        key = self.folder / "service-accounts.key"
        return [
            f"--etcd-servers={etcd}",
            f"--bind-address={self._address}",
            f"--advertise-address={self._address}",
            f"--secure-port={port}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            *([] if self._controllers else ["--disable-admission-plugins=ServiceAccount"]),
            *self._gates,
            *self._options,
        ]

    def _controller_options(self, port: int, certificate: Path) -> list[str]:
        return [
            *self._own_options("kube-controller-manager", port),
            f"--service-account-private-key-file={self.folder / 'service-accounts.key'}",
            f"--root-ca-file={certificate}",
        ]

    def _own_options(self, name: str, port: int) -> list[str]:
        """Return the options that controller-manager and scheduler share."""
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / name}",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            *self._gates,
        ]

    def _write_files(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        (self.folder / "service-accounts.key").write_bytes(pem)
        (self.folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')

    def _write_kubeconfig(self, certificate: Path) -> Path:
        path = self.folder / "kubeconfig"
        cluster = {"server": self.server, "certificate-authority": str(certificate)}
        path.write_text(
            json.dumps(  # which is YAML as well
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "clusters": [{"name": "tests", "cluster": cluster}],
                    "users": [{"name": "admin", "user": {"token": TOKEN}}],
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
                }
            )
        )
        return path

    def _run(self, name: str, *options: str) -> None:
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                [programs(self._release) / name, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )
        self._processes.append((name, process))

    def log(self, name: str) -> Path:
        """Return the log file of a program."""
        return self.folder / f"{name}.log"

    def request(self, path: str, obj: dict[str, Any] | None = None) -> Any:
        """Get what is at a path of the API, or create an object there, as an administrator."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        body = json.dumps(obj).encode() if obj else None
        request = urllib.request.Request(self.server + path, body, headers)
        context = ssl.create_default_context(cafile=str(self._certificate))
        with urllib.request.urlopen(request, timeout=START_LIMIT_S, context=context) as answer:
            return json.load(answer)

    def _wait(self, name: str, url: str, certificate: Path | None = None) -> None:
        """Wait until a process answers a request with 200."""
        process = dict(self._processes)[name]
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            if _answers(url, certificate):
                return
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{name} does not serve {url}:\n{self.log(name).read_text()[-3000:]}")
            time.sleep(_POLL_S)


def _answers(url: str, certificate: Path | None) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        context = ssl.create_default_context(cafile=str(certificate)) if certificate else None
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError, ssl.SSLError):
        return False


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Return ports of an address of this machine that nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((address, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def die_with_parent() -> None:
    """Ask the kernel, in a new process, to kill it when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    with ControlPlane() as plane:
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
