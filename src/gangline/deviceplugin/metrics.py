"""The device plugin's figures for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gangline.deviceplugin.plugin import DevicePlugin
from gangline.workloads.gpu_source import kind_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def plugin_metrics(plugin: DevicePlugin, node: str) -> Iterator[Metric]:
    """Yield every metric of a device plugin.

    Args:
        plugin: that serves the node.
        node: its name.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    inventory = plugin.inventory
    states = Counter({"healthy": 0, "unhealthy": 0})
    states.update("healthy" if gpu.healthy else "unhealthy" for gpu in inventory.gpus)
    text = "GPUs that the kubelet is told of."
    gpus = GaugeMetricFamily("gangline_device_plugin_gpus", text, labels=["node", "kind", "state"])
    for state, count in states.items():
        gpus.add_metric([node, kind_of(inventory.source), state], count)
    yield gpus
    text = "Containers that were given GPUs."
    yield CounterMetricFamily("gangline_device_plugin_allocations", text, plugin.allocations)
