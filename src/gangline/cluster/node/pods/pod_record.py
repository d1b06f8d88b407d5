"""What the agent writes down about a pod before it starts; the next agent adopts it by that, or cleans up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.cluster.node.device_plugins import DeviceGrant
from gangline.cluster.node.network.host_names import PodHost
from gangline.cluster.node.pods.container_plan import hostname_of
from gangline.cluster.node.sessions import kind_of_session, name_scope, on_machines_network
from gangline.cluster.node.shim.durable import write_durably
from gangline.jobs.names import JOB_NAME_LABEL
from gangline.workloads.gang_names import gang_of
from gangline.workloads.kinds import REPLICA_TYPE_LABEL

PORT_MAX = 65535
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class PodRecord(msgspec.Struct, frozen=True):
    """``pod.json`` in the pod's folder.

    ``started_at`` is in seconds since 1970, ``gpus`` container -> ids of the GPUs that it holds, ``grants``
    container -> what device plugins gave it, ``boot`` tells one start of the machine from another,
    ``session`` and ``scope`` are what ``sessions`` says, ``has_service`` that it is a training job's replica,
    to which a Service of its name leads, ``figures`` the port and path of its metrics, as `9400/metrics`,
    ``peers`` the gang or job whose pods it has links of its own to; empty on the machine's network.
    """

    uid: str
    namespace: str
    name: str
    address: str
    hostname: str
    subdomain: str
    started_at: float
    gpus: dict[str, tuple[str, ...]] = {}
    grants: dict[str, DeviceGrant] = {}
    boot: str = ""
    session: str = ""
    scope: str = ""
    host_aliases: tuple[str, ...] = ()
    host_network: bool = False
    has_service: bool = False
    figures: str = ""
    peers: str = ""

    @classmethod
    def of(cls, pod: Pod, *, address: str, started_at: float) -> PodRecord:
        """Return the record of a pod that is about to start."""
        return cls(
            uid=pod.metadata.uid,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            address=address,
            hostname=hostname_of(pod),
            subdomain=pod.spec.subdomain,
            started_at=started_at,
            boot=boot_id(),
            session=kind_of_session(pod),
            scope=name_scope(pod),
            host_aliases=tuple(
                "\t".join((alias["ip"], *alias.get("hostnames", ()))) for alias in pod.spec.host_aliases
            ),
            host_network=pod.spec.host_network,
            has_service=REPLICA_TYPE_LABEL in pod.metadata.labels,
            figures=figures_of(pod.metadata.annotations),
            peers="" if on_machines_network(pod) else gang_of(pod) or job_of(pod),
        )

    @property
    def is_of_earlier_boot(self) -> bool:
        """Whether the machine was started anew since; then nothing of the pod runs any more."""
        return self.boot != boot_id()

    @property
    def host(self) -> PodHost:
        """The pod as a host."""
        scope = self.scope or self.namespace
        return PodHost(
            self.address,
            self.name,
            self.hostname,
            self.subdomain,
            self.namespace,
            scope,
            self.host_aliases,
            self.host_network,
            self.has_service,
        )

    def write(self, folder: Path) -> None:
        """Write the record into the pod's folder, for good.

        Raises:
            OSError: the disk refuses.
        """
        write_durably(folder / "pod.json", msgspec.json.encode(self))


def job_of(pod: Pod) -> str:
    """Return ``NAMESPACE/NAME`` of the training job that a pod is a replica of; empty for none."""
    name = pod.metadata.labels.get(JOB_NAME_LABEL)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def figures_of(annotations: Mapping[str, str]) -> str:
    """Return the port and path of a pod's metrics by the annotations that Prometheus' guides use.

    Example:
        >>> figures_of({"prometheus.io/scrape": "true", "prometheus.io/port": "9400"})
        '9400/metrics'
    """
    port = annotations.get("prometheus.io/port", "")
    if annotations.get("prometheus.io/scrape") != "true" or not port.isdecimal() or int(port) > PORT_MAX:
        return ""
    return f"{port}/{annotations.get('prometheus.io/path', 'metrics').lstrip('/')}"


def boot_id() -> str:
    """Return what tells this start of the machine from others; empty where the system has no such thing."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def read_record(folder: Path) -> PodRecord | None:
    """Return the record of one pod's folder, None where there is none that can be read."""
    try:
        return msgspec.json.decode((folder / "pod.json").read_bytes(), type=PodRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def read_records(pods: Path) -> list[PodRecord]:
    """Return the records of all pod folders; a folder without a readable record is removed."""
    records = []
    if not pods.is_dir():
        return []
    for folder in sorted(pods.iterdir()):
        if record := read_record(folder):
            records.append(record)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return records


def read_last_reports(folder: Path) -> dict[str, dict[str, Any]] | None:
    """Return what a shim that is gone wrote last of each container; None when its file is gone as well."""
    try:
        return dict(json.loads((folder / "state.json").read_bytes())["containers"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
