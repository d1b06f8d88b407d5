"""Read the node annotation ``gangline.dev/gpu-topology``; :meth:`Machine.annotation` writes it.

The value is JSON: ``{"model", "source", "gpus": [{"uuid", "index", "numa", "healthy"}], "links": [["X",
"NV2", ...], ...]}``. Row and column i of ``links`` belong to entry i of ``gpus``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec

from gangline.errors import UserError
from gangline.topology.known import machine_of_links
from gangline.topology.links import Matrix
from gangline.topology.machine import Machine, machine_from_matrix
from gangline.topology.measured import WireRates, contradicts, read_rates, with_rates

ANNOTATION = "gangline.dev/gpu-topology"
GPUS_MAX = 64
"""More GPUs than this on one node are a mistake; sets of GPUs are kept in 64-bit masks."""

MACHINES_MAX = 256
"""Different machines of a cluster that are remembered, so that equal nodes share one table of choices."""


class _Gpu(msgspec.Struct, frozen=True):
    uuid: str
    index: int
    numa: int = 0
    healthy: bool = True


class _Value(msgspec.Struct, frozen=True):
    model: str
    gpus: tuple[_Gpu, ...]
    links: tuple[tuple[str, ...], ...]
    source: str = "file"


_decoder = msgspec.json.Decoder(_Value)


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of one node. Bit i of a mask, and row i of the machine's links, is ``uuids[i]``.

    Attributes:
        machine: their links, by which they are chosen: with measured rates where these contradict the model.
        uuids: identities, in the order of the matrix.
        indices: device index of each.
        healthy: mask of those that may be used.
        source: ``nvml``, ``file`` or ``simulated``.
        rates: what was measured on them and on the network of the node, None where nobody did.
    """

    machine: Machine
    uuids: tuple[str, ...]
    indices: tuple[int, ...]
    healthy: int
    source: str
    rates: WireRates | None = None

    def mask_of(self, uuids: Collection[str]) -> int:
        """Return the mask of some of the GPUs; a UUID that is not on this node is left out."""
        mask = 0
        for bit, uuid in enumerate(self.uuids):
            if uuid in uuids:  # a few at most: a set would cost more
                mask |= 1 << bit
        return mask

    def uuids_of(self, mask: int) -> tuple[str, ...]:
        """Return the UUIDs of a mask, in the order of the matrix."""
        return tuple(uuid for bit, uuid in enumerate(self.uuids) if mask >> bit & 1)


def read_annotation(text: str | bytes, *, node: str = "", rates: str = "") -> NodeGpus:
    """Return what the annotation of a node says.

    Args:
        text: its value.
        node: the node's name, for messages.
        rates: value of the annotation of measured rates, see :mod:`gangline.topology.measured`.

    Raises:
        UserError: the value is not of the documented shape, or its matrix is not sound.

    Cost: about 15 µs for eight GPUs; equal machines are built once.
    """
    what = f"annotation `{ANNOTATION}`" + (f" of node `{node}`" if node else "")
    try:
        value = _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise UserError(f"{what} cannot be read: {error}", hint="gangline's node agent writes it") from None
    if not 0 < len(value.gpus) <= GPUS_MAX or len(value.links) != len(value.gpus):
        raise UserError(
            f"{what} has {len(value.gpus)} GPUs and {len(value.links)} rows of links; both must be the same, "
            f"1 to {GPUS_MAX}"
        )
    uuids = tuple(gpu.uuid for gpu in value.gpus)
    if len(set(uuids)) != len(uuids):
        raise UserError(f"{what} names a UUID twice")
    try:
        machine = _machine(value.model, value.links, tuple(gpu.numa for gpu in value.gpus))
    except UserError as error:
        raise UserError(f"{what}: {error.message}", hint=error.hint) from None
    indices = tuple(gpu.index for gpu in value.gpus)
    measured = read_rates(rates, node=node) if rates else None
    if measured is not None and contradicts(measured):
        machine = replace(machine, measured=with_rates(machine, measured, indices).measured)
    return NodeGpus(
        machine=machine,
        uuids=uuids,
        indices=indices,
        healthy=sum(1 << bit for bit, gpu in enumerate(value.gpus) if gpu.healthy),
        source=value.source,
        rates=measured,
    )


@lru_cache(maxsize=MACHINES_MAX)
def _machine(model: str, links: Matrix, numa: tuple[int, ...]) -> Machine:
    known = machine_of_links(model, links)
    if known is not None and known.numa == numa:
        return known
    return machine_from_matrix(model, links, numa=numa)
