"""What the agent writes down about a pod, so that the next agent can adopt it or clean up after it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.local.agent.container_plan import hostname_of
from gangline.local.agent.names import Host


class PodRecord(msgspec.Struct, frozen=True):
    """``pod.json`` in the pod's folder.

    ``started_at`` is in seconds since 1970, ``gpus`` container -> ids of the GPUs that it holds.
    """

    uid: str
    namespace: str
    name: str
    address: str
    hostname: str
    subdomain: str
    started_at: float
    gpus: dict[str, tuple[str, ...]] = {}

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
        )

    @property
    def host(self) -> Host:
        """The pod as a host."""
        return Host(self.address, self.name, self.hostname, self.subdomain, self.namespace)

    def write(self, folder: Path) -> None:
        """Write the record into the pod's folder, whole."""
        draft = folder / "pod.json.new"
        draft.write_bytes(msgspec.json.encode(self))
        draft.replace(folder / "pod.json")


def read_records(pods: Path) -> list[PodRecord]:
    """Return the records of all pod folders; a folder without a readable record is removed."""
    records = []
    if not pods.is_dir():
        return []
    for folder in sorted(pods.iterdir()):
        try:
            records.append(msgspec.json.decode((folder / "pod.json").read_bytes(), type=PodRecord))
        except (OSError, msgspec.MsgspecError):
            shutil.rmtree(folder, ignore_errors=True)
    return records


def read_last_state(folder: Path) -> dict[str, Any]:
    """Return what a shim wrote last, for one that is gone; empty when it wrote nothing."""
    try:
        state = json.loads((folder / "state.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
