"""What the wires are: link graphs of nodes and racks, the bandwidth and step-time model, known machines.

Pure: values in, values out. What a user of the library needs is imported from here, on first use; the
modules behind it may change. Reading order: ``links`` (names), ``machine`` (one node), ``known`` (machines by
name), ``annotation``, ``smi``, ``nvml`` (machines read from a node), ``measured`` (rates
measured on a node), ``link_resources`` and ``rings`` (what
the links carry together), ``gpu_choices`` (which GPUs to take), ``network`` (racks and blocks),
``all_reduce_time`` and ``step_time`` (how long it takes), ``rates`` (every constant with its source).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.topology.all_reduce_time import AllReduce as AllReduce
    from gangline.topology.all_reduce_time import Part as Part
    from gangline.topology.all_reduce_time import all_reduce as all_reduce
    from gangline.topology.annotation import NodeGpus as NodeGpus
    from gangline.topology.annotation import read_annotation as read_annotation
    from gangline.topology.gpu_choices import Choices as Choices
    from gangline.topology.gpu_choices import choices as choices
    from gangline.topology.known import known_machine as known_machine
    from gangline.topology.known import known_names as known_names
    from gangline.topology.known import machine_of_name as machine_of_name
    from gangline.topology.link_resources import mask_of as mask_of
    from gangline.topology.link_resources import members as members
    from gangline.topology.machine import Machine as Machine
    from gangline.topology.machine import machine_from_matrix as machine_from_matrix
    from gangline.topology.measured import RATES_ANNOTATION as RATES_ANNOTATION
    from gangline.topology.measured import NetworkRate as NetworkRate
    from gangline.topology.measured import SetRate as SetRate
    from gangline.topology.measured import WireRates as WireRates
    from gangline.topology.measured import predicted_gb_s as predicted_gb_s
    from gangline.topology.measured import read_rates as read_rates
    from gangline.topology.measured import sets_to_measure as sets_to_measure
    from gangline.topology.measured import with_rates as with_rates
    from gangline.topology.network import Level as Level
    from gangline.topology.network import NetworkDomains as NetworkDomains
    from gangline.topology.network import parse_levels as parse_levels
    from gangline.topology.network import with_cards as with_cards
    from gangline.topology.nvml import NvmlGpu as NvmlGpu
    from gangline.topology.nvml import machine_of_nvml as machine_of_nvml
    from gangline.topology.rings import DeviceChain as DeviceChain
    from gangline.topology.rings import Rings as Rings
    from gangline.topology.rings import best_chain as best_chain
    from gangline.topology.rings import best_rings as best_rings
    from gangline.topology.rings import bus_gb_s as bus_gb_s
    from gangline.topology.rings import rank_order as rank_order
    from gangline.topology.smi import read_smi as read_smi
    from gangline.topology.step_time import Prediction as Prediction
    from gangline.topology.step_time import Training as Training
    from gangline.topology.step_time import predict as predict

_HOMES = {
    "AllReduce": "all_reduce_time",
    "Choices": "gpu_choices",
    "DeviceChain": "rings",
    "Level": "network",
    "Machine": "machine",
    "NetworkDomains": "network",
    "NetworkRate": "measured",
    "NodeGpus": "annotation",
    "NvmlGpu": "nvml",
    "Part": "all_reduce_time",
    "Prediction": "step_time",
    "RATES_ANNOTATION": "measured",
    "Rings": "rings",
    "SetRate": "measured",
    "Training": "step_time",
    "WireRates": "measured",
    "all_reduce": "all_reduce_time",
    "best_chain": "rings",
    "best_rings": "rings",
    "bus_gb_s": "rings",
    "choices": "gpu_choices",
    "known_machine": "known",
    "known_names": "known",
    "machine_from_matrix": "machine",
    "machine_of_name": "known",
    "machine_of_nvml": "nvml",
    "mask_of": "link_resources",
    "members": "link_resources",
    "parse_levels": "network",
    "predict": "step_time",
    "predicted_gb_s": "measured",
    "rank_order": "rings",
    "read_annotation": "annotation",
    "read_rates": "measured",
    "read_smi": "smi",
    "sets_to_measure": "measured",
    "with_cards": "network",
    "with_rates": "measured",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - from one table; a test holds what it says


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
