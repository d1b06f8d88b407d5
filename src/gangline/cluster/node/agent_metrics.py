"""The node agent's figures for Prometheus: pods that it runs, and who holds which of its GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gangline.cluster.node.gpus import AgentGpus
from gangline.workloads.gpu_source import kind_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gangline.api.core import Node, Pod


def agent_metrics(nodes: Iterable[Node], pods: Iterable[Pod], gpus: AgentGpus) -> Iterator[Metric]:
    """Yield every metric of a node agent.

    Args:
        nodes: that it keeps.
        pods: that it runs.
        gpus: the books over their GPUs.
    """
    from prometheus_client.core import GaugeMetricFamily

    names = sorted(node.metadata.name for node in nodes)
    running = {pod.metadata.uid: pod for pod in pods}
    counts = Counter(pod.spec.node_name for pod in running.values())
    # named as a kubelet names it; that one has no need to say which node
    family = GaugeMetricFamily("kubelet_running_pods", "Pods that run.", labels=["node"])
    for name in names:
        family.add_metric([name], counts[name])
    yield family
    devices = GaugeMetricFamily(
        "gangline_agent_gpus", "GPUs of a node, simulated ones too.", labels=["node", "kind", "state"]
    )
    held = Counter[tuple[str, str]]()
    holders = gpus.held()
    for name in names:
        inventory = gpus.inventory(name)
        states = Counter({"held": 0, "free": 0, "unhealthy": 0})
        for gpu in inventory.gpus:
            holder = holders.get(gpu.uuid)
            states["held" if holder else "free" if gpu.healthy else "unhealthy"] += 1
            if holder:
                held[name, holder] += 1
        for state, count in states.items() if inventory.gpus else ():
            devices.add_metric([name, kind_of(inventory.source), state], count)
    yield devices
    by_pod = GaugeMetricFamily(
        "gangline_agent_pod_gpus", "GPUs that a pod holds.", labels=["node", "namespace", "pod"]
    )
    for (name, uid), count in sorted(held.items()):
        if pod := running.get(uid):
            by_pod.add_metric([name, pod.metadata.namespace, pod.metadata.name], count)
    yield by_pod
