"""``metrics.k8s.io``: what pods and nodes use of processors and memory; ``kubectl top`` asks for it.

Read from /proc when asked, for what shims have written of their containers. A rate is that since an earlier
question, or since the container's start. All nodes are one machine: each has what its pods use.
Source: k8s.io/metrics/pkg/apis/metrics/v1beta1.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from gangline import clock
from gangline.clock import format_time
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.request_context import RequestContext, answer, encode_json
from gangline.cluster.server.resources import POD_METRICS
from gangline.cluster.server.verbs.reading import namespace_of, select

SAMPLE_PERIOD_S = 10.0
"""A rate is over at least so long, but for a container that is younger."""

Container = tuple[str, str, int]
"""Uid of the pod, name of the container, process id of its first process."""


class Usage(NamedTuple):
    """What a process, or all of a container, has used so far of processors, and its memory now."""

    cpu_s: float = 0.0
    memory_bytes: int = 0


class ProcessUsage(NamedTuple):
    """The usage of one process, the children that it has waited for included; and its parent."""

    parent: int
    usage: Usage


def read_processes(proc: Path = Path("/proc")) -> dict[int, ProcessUsage]:
    """Return every process of the machine. Cost: 20 µs a process."""
    tick_s, page_bytes = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # 12 (a name) S 1 12 12 0 -1 4194560 ...; source: proc(5)
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        usage = Usage(sum(map(int, fields[11:15])) * tick_s, int(fields[21]) * page_bytes)
        found[int(folder.name)] = ProcessUsage(int(fields[1]), usage)
    return found


def usage_of(
    processes: Mapping[int, ProcessUsage], first: Mapping[int, Container], shims: Mapping[int, Container]
) -> dict[Container, Usage]:
    """Return the usage of containers: that of their first processes and of all below these.

    Args:
        processes: by process id.
        first: containers by the id of their first process.
        shims: what the other children of a shim count to: programs of ``exec``, and those whose parent ended.
    """
    found = dict.fromkeys(first.values(), Usage())
    for pid, process in processes.items():
        at = pid
        while at in processes and at not in first and at not in shims:
            at = processes[at].parent
        owner = first.get(at) or (shims.get(at) if at != pid else None)
        if owner is not None:
            old, new = found[owner], process.usage
            found[owner] = Usage(old.cpu_s + new.cpu_s, old.memory_bytes + new.memory_bytes)
    return found


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
            shim, running = _running(self._api.paths, uid)
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


def _running(paths: ClusterPaths, uid: str) -> tuple[int, list[tuple[str, int, float]]]:
    """Return the process of a pod's shim, and name, first process and start of each container that runs."""
    try:
        state = json.loads((paths.pods / uid / "state.json").read_bytes())
    except (OSError, ValueError):
        return 0, []
    running = [one for one in state["containers"].values() if one["state"] == "running"]
    return state["pid"], [(one["name"], one["pid"], one["started_at"]) for one in running]


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
