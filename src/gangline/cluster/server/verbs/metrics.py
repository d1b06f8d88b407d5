"""``metrics.k8s.io``: what pods and nodes use of processors and memory; ``kubectl top`` asks for it.

Read from /proc when asked, for what shims have written of their containers. A rate is that since an earlier
question, or since the container's start. All nodes are one machine: each has what its pods use.
Source: k8s.io/metrics/pkg/apis/metrics/v1beta1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from gangline import clock
from gangline.clock import format_time
from gangline.cluster.pod_usage import Container, read_processes, running_containers, usage_of
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.request_context import RequestContext, answer, encode_json
from gangline.cluster.server.resources import POD_METRICS
from gangline.cluster.server.verbs.reading import namespace_of, select

SAMPLE_PERIOD_S = 10.0
"""A rate is over at least so long, but for a container that is younger."""


class Metrics:
    """Answers questions about usage; remembers a moment of each container for the next rates."""

    def __init__(self, api: ApiContext) -> None:
        self._api = api
        self._samples: dict[Container, tuple[float, float]] = {}

    async def answer(self, context: RequestContext) -> web.Response:
        """Answer GET and LIST.

        Raises:
            StatusError: 404, no such pod or node, or the pod does not run.
        """
        target, served = context.target, context.target.served
        is_pods = served.resource == POD_METRICS
        labels, fields = context.selectors()
        collection = "/pods" if is_pods else "/nodes"
        found = select(self._api.store, collection, namespace_of(context), labels, fields)
        asked = [entry.obj for entry in found if target.name in ("", entry.obj["metadata"]["name"])]
        pods = asked if is_pods else [entry.obj for entry in self._api.store.entries("/pods")]
        used = await asyncio.to_thread(self._measure, [pod["metadata"]["uid"] for pod in pods])
        if is_pods:
            items = [_item(pod, containers=of) for pod in asked if (of := used.get(pod["metadata"]["uid"]))]
        else:
            items = []
            for node in asked:
                on_it = [pod for pod in pods if pod["spec"].get("nodeName") == node["metadata"]["name"]]
                parts = [part["usage"] for pod in on_it for part in used.get(pod["metadata"]["uid"], ())]
                items.append(_item(node, usage=_sum(parts)))
        kind = {"apiVersion": served.resource.api_version, "kind": served.resource.kind}
        if not target.name:
            kind["kind"] = served.list_kind
            return answer(encode_json({**kind, "metadata": {}, "items": items}))
        if not items:
            raise status_errors.not_found(served, target.name)
        return answer(encode_json({**kind, **items[0]}))

    def _measure(self, uids: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the containers that run of each pod, as ``PodMetrics`` has them."""
        first: dict[int, Container] = {}
        shims: dict[int, Container] = {}
        began: dict[Container, float] = {}
        for uid in uids:
            shim, running = running_containers(self._api.paths, uid)
            for name, pid, started_s in running:
                first[pid] = container = (uid, name, pid)
                shims.setdefault(shim, container)
                began[container] = started_s
        now_s = time.time()
        found: dict[str, list[dict[str, Any]]] = {}
        pods = self._api.paths.pods
        self._samples = {one: sample for one, sample in self._samples.items() if (pods / one[0]).exists()}
        for container, usage in usage_of(read_processes(), first, shims).items():
            since_s, base_s = self._samples.get(container, (began[container], 0.0))
            window_s = now_s - since_s
            if window_s >= SAMPLE_PERIOD_S:
                self._samples[container] = (now_s, usage.cpu_s)
            nano = max(0, round((usage.cpu_s - base_s) / max(window_s, 0.1) * 1e9))
            amounts = {"cpu": f"{nano}n", "memory": f"{usage.memory_bytes // 1024}Ki"}
            found.setdefault(container[0], []).append({"name": container[1], "usage": amounts})
        return found


def _sum(usages: Iterable[Mapping[str, str]]) -> dict[str, str]:
    nano = kib = 0
    for usage in usages:
        nano += int(usage["cpu"].removesuffix("n"))
        kib += int(usage["memory"].removesuffix("Ki"))
    return {"cpu": f"{nano}n", "memory": f"{kib}Ki"}


def _item(obj: Mapping[str, Any], **amounts: Any) -> dict[str, Any]:
    meta = {key: obj["metadata"][key] for key in ("name", "namespace", "labels") if key in obj["metadata"]}
    now = format_time(clock.now())
    metadata = {**meta, "creationTimestamp": now}
    return {"metadata": metadata, "timestamp": now, "window": f"{SAMPLE_PERIOD_S:.0f}s", **amounts}
