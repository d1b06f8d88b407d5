"""What a node publishes of our own driver: GPUs with their links, as placement knows those of nodes. Pure."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gangline.errors import UserError
from gangline.placement.claims.devices import Device, Slice
from gangline.topology import NodeGpus, read_annotation
from gangline.workloads.device_class import DRIVER

Obj = dict[str, Any]


class GpuSlice(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that a node publishes, by UUID, and their links.

    Those with a taint are for nobody whose claim tolerates none.
    """

    devices: dict[str, Device] = {}
    gpus: NodeGpus | None = None

    @classmethod
    def of(cls, found: Slice) -> GpuSlice:
        """Return what a slice of our driver says."""
        devices = {device.uuid: device for device in found.devices}
        return cls(devices=devices, gpus=_gpus(devices))


def _gpus(devices: dict[str, Device]) -> NodeGpus | None:
    """Return the GPUs with their links; where one says nothing of them, the slowest are assumed."""
    said: dict[str, Obj] = {uuid: device.seen["attributes"][DRIVER] for uuid, device in devices.items()}
    count = len(said)
    links = [str(one.get("links") or "").split() for one in said.values()]
    if any(len(row) != count for row in links):
        links = [["X" if one == other else "SYS" for other in range(count)] for one in range(count)]
    first: Obj = next(iter(said.values()), {})
    note = {
        "model": first.get("productName", ""),
        "source": first.get("source", "file"),
        "gpus": [
            {
                "uuid": uuid,
                "index": one.get("index", place),
                "numa": one.get("numa", 0),
                "healthy": one.get("healthy", True),
            }
            for place, (uuid, one) in enumerate(said.items())
        ],
        "links": links,
    }
    try:
        return read_annotation(json.dumps(note)) if count else None
    except UserError:
        return None
