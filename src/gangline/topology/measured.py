"""What was measured on a node's wires, and what it does to the model: annotation ``gangline.dev/wire-rates``.

The value is JSON: ``{"backend", "device", "bytes", "at", "sets": [{"gpus", "measured", "predicted"}],
"network": {"nodes", "gpus", "measured", "predicted"}}``. Rates are bus bandwidths of a large all-reduce,
GB/s; ``gpus`` are device indices. ``gangline bench wires`` writes it. The prediction stands beside what was
measured as it was when that was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from math import inf

import msgspec

from gangline.errors import UserError
from gangline.topology.all_reduce_time import Part, all_reduce
from gangline.topology.gpu_choices import TABLE_MAX
from gangline.topology.link_resources import MACHINES_MAX, mask_of, members
from gangline.topology.machine import Machine
from gangline.topology.rates import BITS_PER_BYTE
from gangline.topology.rings import kind_of_set

RATES_ANNOTATION = "gangline.dev/wire-rates"
CPU = "cpu"
"""The device of rates between processes that took no GPU: they predict, and choose nothing."""

CONTRADICTION = 0.8
"""A set that the model prefers, and that carries less than this share of another one, contradicts it."""

LARGE_BYTES = float(1 << 32)
_HALVINGS = 40


class SetRate(msgspec.Struct, frozen=True):
    """A set of GPUs of the node: its device indices, and its bus bandwidth in GB/s."""

    gpus: tuple[int, ...]
    measured: float
    predicted: float


class NetworkRate(msgspec.Struct, frozen=True):
    """Two nodes: their names, device indices on each of both, and their bus bandwidth in GB/s."""

    nodes: tuple[str, str]
    gpus: tuple[int, ...]
    measured: float
    predicted: float


class WireRates(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was measured on one node.

    Attributes:
        backend: ``nccl``, ``gloo`` or ``mpi``.
        device: product name of the GPUs that took part, or ``cpu``.
        size_bytes: of one rank's tensor.
        at: when, RFC 3339.
        sets: on the node itself.
        network: to another node; None where it was not measured.
    """

    backend: str
    device: str
    size_bytes: int = msgspec.field(name="bytes")
    at: str
    sets: tuple[SetRate, ...] = ()
    network: NetworkRate | None = None

    @property
    def way(self) -> str:
        """How it was measured, for people."""
        return f"{self.backend} on {self.device if self.is_of_gpus else 'CPUs, no GPU took part'}"

    @property
    def is_of_gpus(self) -> bool:
        """Whether GPUs took part."""
        return self.device != CPU


_decoder = msgspec.json.Decoder(WireRates)


@lru_cache(maxsize=MACHINES_MAX)
def read_rates(text: str, *, node: str = "") -> WireRates:
    """Return what the annotation of a node says.

    Raises:
        UserError: the value is not of the documented shape, or a rate is no number above 0.
    """
    what = f"annotation `{RATES_ANNOTATION}`" + (f" of node `{node}`" if node else "")
    hint = "gangline bench wires NODE writes it anew"
    try:
        rates = _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise UserError(f"{what} cannot be read: {error}", hint=hint) from None
    network = (rates.network,) if rates.network else ()
    entries: list[SetRate | NetworkRate] = [*rates.sets, *network]
    for entry in entries:
        if not 0 < entry.measured < inf or not entry.gpus:
            raise UserError(f"{what}: GPUs {list(entry.gpus)} have the rate {entry.measured:g}", hint=hint)
    return rates


def sets_to_measure(machine: Machine, *, every: bool = False) -> tuple[int, ...]:
    """Return masks of the sets of GPUs that are worth a measurement, small ones first.

    One of each kind that the model tells apart; with ``every`` all. Of a machine of more than eight GPUs,
    sets of the lowest indices.
    """
    if machine.count > TABLE_MAX:
        return tuple((1 << count) - 1 for count in range(2, machine.count + 1))
    found: dict[object, int] = {}
    for count in range(2, machine.count + 1):
        for gpus in combinations(range(machine.count), count):
            mask = mask_of(gpus)
            found.setdefault(mask if every else kind_of_set(machine, mask), mask)
    return tuple(found.values())


def predicted_gb_s(parts: Sequence[Part]) -> float:
    """Return the bus bandwidth that the model predicts for a large all-reduce, GB/s."""
    return all_reduce(parts, LARGE_BYTES).bus_gb_s


def with_rates(machine: Machine, rates: WireRates, indices: Sequence[int]) -> Machine:
    """Return a machine whose links and network carry what was measured.

    Args:
        machine: the node's.
        rates: measured there.
        indices: device index of each of its GPUs; sets with another index are left out.
    """
    bits = {index: bit for bit, index in enumerate(indices)}

    def mask(gpus: tuple[int, ...]) -> int:
        return mask_of(tuple(bits[gpu] for gpu in gpus)) if bits.keys() >= set(gpus) else 0

    sets = tuple((mask(one.gpus), one.measured) for one in rates.sets if mask(one.gpus).bit_count() > 1)
    found = replace(machine, measured=sets)
    network = rates.network
    if network is None or not mask(network.gpus):
        return found
    return _on_measured_network(found, mask(network.gpus), network.measured)


@lru_cache(maxsize=MACHINES_MAX)
def _on_measured_network(machine: Machine, mask: int, measured: float) -> Machine:
    """Return the machine with the network with which the model predicts what was measured between two of it.

    What the GPUs themselves hold back, no network makes good: then it is as fast as was measured.
    """

    def with_network(gbit_s: float) -> Machine:
        return replace(machine, network_gbit_s=gbit_s, flow_gbit_s=None)

    def predicted(gbit_s: float) -> float:
        part = Part(with_network(gbit_s), mask)
        return predicted_gb_s([part, part])

    share = machine.network_of(members(mask)) / min(machine.network_gbit_s, machine.flow_gbit_s or inf)
    low, high = 0.0, 2 * measured * BITS_PER_BYTE / share
    if predicted(high) < measured:
        return with_network(measured * BITS_PER_BYTE / share)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if predicted(middle) >= measured else (middle, high)
    return with_network(high)


def contradicts(rates: WireRates) -> bool:
    """Return whether GPUs chosen by the model would be slower by more than a fifth than others.

    Only rates of the GPUs themselves can say so.
    """
    if not rates.is_of_gpus:
        return False
    for count in {len(one.gpus) for one in rates.sets}:
        least = inf
        alike = [one for one in rates.sets if len(one.gpus) == count]
        for one in sorted(alike, key=lambda one: (-round(one.predicted, 3), one.measured)):
            if least < CONTRADICTION * one.measured:
                return True
            least = min(least, one.measured)
    return False
