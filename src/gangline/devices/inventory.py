"""What GPUs a node has, as values, and what of it other programs are told. Pure."""

from __future__ import annotations

import json
import re

import msgspec
from msgspec.structs import replace

from gangline.workloads.gpu_source import SOURCE_LABEL, Source, gpus_in_words, kind_of
from gangline.workloads.requests import GPU

RESOURCE = GPU
"""What nodes offer; pods may ask for it by other names."""

TOPOLOGY_ANNOTATION = "gangline.dev/gpu-topology"

PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"
"""Where a node's kubelet and its device plugins have their sockets; a pod mounts the folder."""

NODE_FILE = "gangline-gpus.json"
"""In that folder on the one-machine cluster: a ``DeviceInventory`` as JSON, for the node's plugin."""

PRODUCT_LABEL = "nvidia.com/gpu.product"
COUNT_LABEL = "nvidia.com/gpu.count"
SIMULATED_ROLE_LABEL = "node-role.kubernetes.io/simulated-gpus"
"""Shown by ``kubectl get nodes`` in the column ROLES."""

UNHEALTHY_ANNOTATION = "gangline.dev/unhealthy-gpus"
"""Node annotation: indices of simulated GPUs that play dead: ``3,5``. Set by ``gangline node set-gpu``."""

ADDED_ANNOTATION = "gangline.dev/added-gpus"
"""Node annotation: simulated GPUs that are there for single runs: ``{"Job/default/train": 8}``."""

Links = tuple[tuple[str, ...], ...]
_LABEL_CHARS_MAX = 63


class Gpu(msgspec.Struct, frozen=True):
    """One GPU.

    Attributes:
        uuid: its identity; ``nvidiaN`` where only the device file is known.
        index: its place in the order of the PCI bus, from 0.
        minor: N of ``/dev/nvidiaN``; None for a simulated one.
        numa: node of memory that it is next to, None where unknown.
        healthy: whether it answered when it was asked.
    """

    uuid: str
    index: int
    minor: int | None = None
    numa: int | None = None
    healthy: bool = True


class DeviceInventory(msgspec.Struct, frozen=True):
    """The GPUs of one node, in the order of their indexes.

    Attributes:
        source: where this is known from.
        model: the product's name; of simulated ones the name that was asked for.
        gpus: each GPU once.
        links: for each pair the name that ``nvidia-smi topo -m`` gives (``X``, ``NV2``, ``PIX`` ... ``SYS``);
            empty where unknown.
    """

    source: Source = "file"
    model: str = ""
    gpus: tuple[Gpu, ...] = ()
    links: Links = ()

    @property
    def is_simulated(self) -> bool:
        """Whether these GPUs exist in name only."""
        return self.source == "simulated"

    @property
    def in_words(self) -> str:
        """``8 simulated GPUs``, ``1 real GPU``, ``no GPU``."""
        return gpus_in_words(len(self.gpus), kind_of(self.source))


def read_unhealthy(text: str) -> frozenset[int]:
    """Return the indices in the annotation ``gangline.dev/unhealthy-gpus``; other words count for none.

    Example:
        >>> sorted(read_unhealthy("5, 3"))
        [3, 5]
    """
    return frozenset(int(word) for word in text.replace(",", " ").split() if word.isdecimal())


def read_added(text: str) -> dict[str, int]:
    """Return for which runs a node simulates how many GPUs; what cannot be read counts for none.

    Example:
        >>> read_added('{"Job/default/train": 8}')
        {'Job/default/train': 8}
    """
    try:
        return {str(run): int(count) for run, count in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def with_unhealthy(inventory: DeviceInventory, indices: frozenset[int]) -> DeviceInventory:
    """Return the inventory with exactly these GPUs unhealthy."""
    gpus = tuple(replace(gpu, healthy=gpu.index not in indices) for gpu in inventory.gpus)
    return replace(inventory, gpus=gpus)


def capacity(inventory: DeviceInventory) -> dict[str, str]:
    """Return what the node's ``status.capacity`` says of GPUs: empty for none."""
    return {RESOURCE: str(len(inventory.gpus))} if inventory.gpus else {}


def allocatable(inventory: DeviceInventory) -> dict[str, str]:
    """Return what ``status.allocatable`` says: the healthy ones."""
    healthy = sum(gpu.healthy for gpu in inventory.gpus)
    return {RESOURCE: str(healthy)} if inventory.gpus else {}


def node_labels(inventory: DeviceInventory) -> dict[str, str | None]:
    """Return the labels of the node; None takes a label of an earlier start away."""
    names = (PRODUCT_LABEL, COUNT_LABEL, SOURCE_LABEL, SIMULATED_ROLE_LABEL)
    labels: dict[str, str | None] = dict.fromkeys(names)
    if inventory.gpus:
        product = re.sub(r"[^A-Za-z0-9._-]+", "-", inventory.model)
        product = f"simulated-{product}" if inventory.is_simulated else product
        labels[PRODUCT_LABEL] = product[:_LABEL_CHARS_MAX].strip("-._") or None
        labels[COUNT_LABEL] = str(len(inventory.gpus))
        labels[SOURCE_LABEL] = inventory.source
        labels[SIMULATED_ROLE_LABEL] = "" if inventory.is_simulated else None
    return labels


def topology_note(inventory: DeviceInventory) -> str | None:
    """Return the value of the node annotation ``gangline.dev/gpu-topology``, None for no GPU.

    ``{"model", "source", "gpus": [{"uuid", "index", "numa", "healthy"}], "links": [["X", "NV2", ...], ...]}``
    """
    if not inventory.gpus:
        return None
    gpus = inventory.gpus
    note = {
        "model": inventory.model,
        "source": inventory.source,
        "gpus": [
            {"uuid": gpu.uuid, "index": gpu.index, "numa": gpu.numa or 0, "healthy": gpu.healthy}
            for gpu in gpus
        ],
        # Where no link is known the slowest is promised: no placement is the worse for it.
        "links": inventory.links or [["X" if one is other else "SYS" for other in gpus] for one in gpus],
    }
    return json.dumps(note, separators=(",", ":"))
