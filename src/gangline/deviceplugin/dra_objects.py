"""What a DRA driver tells the cluster and the container runtime of GPUs, as wire objects. Pure.

Source: Kubernetes ``resource.k8s.io/v1``; CDI specification 0.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangline.api.resources import RESOURCE_SLICES
from gangline.deviceplugin.answers import given
from gangline.devices.driver_files import device_files
from gangline.devices.inventory import DeviceInventory, topology_note
from gangline.topology import read_annotation
from gangline.workloads.device_class import DRIVER

STRING_MAX = 64
"""Longest text of an attribute."""
CDI_VERSION, CDI_KIND = "0.6.0", f"{DRIVER}/claim"
Json = dict[str, Any]


def device_name(index: int) -> str:
    """Return the name of a GPU in its pool."""
    return f"gpu-{index}"


def resource_slice(inventory: DeviceInventory, node: str, uid: str, generation: int = 1) -> Json:
    """Return the slice with all GPUs of a node, which owns it.

    An unhealthy GPU stays in it with ``healthy: false``, which the device class asks for: claims that hold it
    stay valid.

    Args:
        inventory: of the node.
        node: its name, which is the pool's too.
        uid: of the Node object.
        generation: of the pool, one more with each change.
    """
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"name": f"{node}-{DRIVER}", "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": _devices(inventory),
        },
    }


def _devices(inventory: DeviceInventory) -> list[Json]:
    note = topology_note(inventory)
    if note is None:
        return []
    machine = read_annotation(note).machine
    devices = []
    for place, gpu in enumerate(inventory.gpus):
        links = " ".join(machine.links[place])
        attributes: Json = {
            "uuid": {"string": gpu.uuid},
            "index": {"int": gpu.index},
            "productName": {"string": inventory.model[:STRING_MAX]},
            "source": {"string": inventory.source},
            "simulated": {"bool": inventory.is_simulated},
            "healthy": {"bool": gpu.healthy},
            "nvlinkGroup": {"int": _group(machine.widths, place)},
        }
        if gpu.numa is not None:
            attributes["numa"] = {"int": gpu.numa}
        if len(links) <= STRING_MAX:
            attributes["links"] = {"string": links}
        devices.append(
            {
                "name": device_name(gpu.index),
                "attributes": attributes,
                "capacity": {"memory": {"value": f"{machine.gpu.memory_gb}G"}},
            }
        )
    return devices


def _group(widths: Sequence[Sequence[int]], place: int) -> int:
    """Return the first of the GPUs that one reaches over NVLinks alone."""
    seen, todo = {place}, [place]
    while todo:
        row = widths[todo.pop()]
        new = {other for other, width in enumerate(row) if width} - seen
        seen |= new
        todo += new
    return min(seen)


def given_devices(claim: Json, pool: str) -> dict[str, list[str]]:
    """Return the devices of a node that a claim has been given, by request: ``{"gpus": ["gpu-0"]}``."""
    found: dict[str, list[str]] = {}
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        if (result.get("driver"), result.get("pool")) == (DRIVER, pool):
            found.setdefault(result["request"], []).append(result["device"])
    return found


def cdi_name(uid: str, request: str) -> str:
    """Return the name of what a container gets that uses a request of a claim."""
    return f"{uid}-{request.replace('/', '-')}"


def cdi_spec(inventory: DeviceInventory, uid: str, devices: dict[str, list[str]]) -> Json:
    """Return the CDI file of a claim: one CDI device for each of its requests.

    Raises:
        KeyError: a device is not on this node; it is the error's argument.
    """
    uuids = {device_name(gpu.index): gpu.uuid for gpu in inventory.gpus}
    return {
        "cdiVersion": CDI_VERSION,
        "kind": CDI_KIND,
        "devices": [
            {
                "name": cdi_name(uid, request),
                "containerEdits": _edits(inventory, [uuids[one] for one in names]),
            }
            for request, names in devices.items()
        ],
    }


def _edits(inventory: DeviceInventory, uuids: list[str]) -> Json:
    found = given(inventory, uuids)
    edits: Json = {"env": [f"{name}={value}" for name, value in found.variables.items()]}
    if files := device_files(found.minors):
        edits["deviceNodes"] = [{"path": path, "permissions": "rw"} for path in files]
    return edits
