"""Where the one-machine cluster keeps its files. Every path is decided here.

State (survives a reboot) lies in ``$GANGLINE_HOME/NAME``, else ``$XDG_STATE_HOME/gangline/NAME``, else
``~/.local/state/gangline/NAME``. Sockets lie in a short folder of their own, because a Unix socket's
path may have 107 bytes at most.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

DEFAULT_CLUSTER = "default"

RUN_BYTES_MAX = 107 - len("/01234567-89ab-cdef-0123-456789abcdef.sock")
"""A longer folder leaves no room for the path of a pod's socket."""

NAME_CHARS_MAX = 120
"""Of an object's name within a file's name: with a namespace (63), a time and a uid beside it the whole stays
under the 255 bytes that file systems take. Names of pods have up to 253 characters."""
SERVERS = "_servers"
"""Folder of the clusters of kubeconfigs; no one-machine cluster may be called so."""
CUT = "~"
"""Ends a name that was cut for a file's name; names of objects do not have it."""


def name_in_file(name: str) -> str:
    """Return an object's name as part of a file's name, cut where it is long; a uid tells it from others."""
    return name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX - len(CUT)] + CUT


def gangline_home() -> Path:
    """Return the folder that holds one folder for each cluster of this user."""
    if home := os.environ.get("GANGLINE_HOME"):
        return Path(home).absolute()
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if state.is_absolute():  # a relative one is to be ignored: XDG Base Directory Specification
        return state / "gangline"
    return Path.home() / ".local" / "state" / "gangline"


class ClusterPaths(msgspec.Struct, frozen=True):
    """The files of one cluster.

    Attributes:
        name: the cluster's name.
        state: its folder, mode 0700.
    """

    name: str
    state: Path

    @classmethod
    def of(cls, name: str = DEFAULT_CLUSTER) -> ClusterPaths:
        """Return the paths of this user's cluster of that name; nothing is created."""
        return cls(name=name, state=gangline_home() / name)

    @classmethod
    def of_server(cls, server: str) -> ClusterPaths:
        """Return where this user keeps runs of a cluster of a kubeconfig, known by its address."""
        name = hashlib.sha256(server.encode()).hexdigest()[:16]
        return cls(name=name, state=gangline_home() / SERVERS / name)

    @property
    def cluster_id(self) -> str:
        """Eight hex digits that tell this cluster from every other on the machine."""
        return hashlib.sha256(str(self.state).encode()).hexdigest()[:8]

    @property
    def run(self) -> Path:
        """Folder of the sockets, mode 0700; short, gone after a reboot."""
        base = os.environ.get("XDG_RUNTIME_DIR")
        if base and len(base) < 24 and Path(base).is_dir():
            return Path(base) / "gangline" / self.cluster_id
        own = Path(f"gangline-{os.getuid()}", self.cluster_id)
        wanted = tempfile.gettempdir() / own
        return wanted if len(os.fsencode(wanted)) <= RUN_BYTES_MAX else "/tmp" / own

    @property
    def api_socket(self) -> Path:
        """The API server's Unix socket, mode 0600 (plain HTTP; our own clients use it)."""
        return self.run / "api.sock"

    @property
    def agent_socket(self) -> Path:
        """The node agent's Unix socket, on which it tells its figures."""
        return self.run / "agent.sock"

    @property
    def facts(self) -> Path:
        """``cluster.json``: identity, port, subnet, isolation; written once, rewritten whole."""
        return self.state / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """Administrator's kubeconfig for kubectl (HTTPS on loopback), mode 0600."""
        return self.state / "kubeconfig"

    @property
    def store(self) -> Path:
        """The SQLite database of every object."""
        return self.state / "store.sqlite"

    @property
    def token(self) -> Path:
        """The administrator's bearer token, mode 0600."""
        return self.state / "token"

    @property
    def certificates(self) -> Path:
        """Folder of ca.crt, ca.key, server.crt, server.key."""
        return self.state / "pki"

    @property
    def pods(self) -> Path:
        """One folder for each pod, named by its uid."""
        return self.state / "pods"

    @property
    def volumes(self) -> Path:
        """Folders of the volumes that are made for claims."""
        return self.state / "volumes"

    @property
    def ends(self) -> Path:
        """How pods ended: ``UID.json``, kept while the pod is in the API and a while longer."""
        return self.state / "ends"

    @property
    def sessions(self) -> Path:
        """Folder of users' sessions, mode 0700: ``JOB-UID.json``, see ``user_session``."""
        return self.state / "sessions"

    @property
    def logs(self) -> Path:
        """Container logs: ``NAMESPACE_POD_UID/CONTAINER/N.log`` in CRI format."""
        return self.state / "logs"

    def pod_logs(self, namespace: str, name: str, uid: str) -> Path:
        """Folder of one pod's logs."""
        return self.logs / f"{namespace}_{name_in_file(name)}_{uid}"

    @property
    def runs(self) -> Path:
        """Records of runs, of those too whose jobs are gone: ``TIME_NAMESPACE_NAME_UID.json``, mode 0600."""
        return self.state / "runs"

    @property
    def gpu_use(self) -> Path:
        """How many GPUs were held over the last hours; see `gpu_use`."""
        return self.state / "gpu-use"

    def pod_socket(self, uid: str) -> Path:
        """Socket of one pod's shim."""
        return self.run / f"{uid}.sock"

    @property
    def names(self) -> Path:
        """Folder of host names: ``NAMESPACE/ALIAS`` is a link to the pod's shim socket."""
        return self.run / "names"

    def lock(self, process: str) -> Path:
        """Lock file of ``server`` or ``agent``: held by flock, contains the process id."""
        return self.state / f"{process}.lock"

    def log(self, process: str) -> Path:
        """Log of ``server`` or ``agent``."""
        return self.state / f"{process}.log"
