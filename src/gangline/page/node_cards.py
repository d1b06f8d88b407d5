"""Nodes, the queue and what is in use, as the page shows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any, Final

from gangline.client.node_view import NodeGpuView, view_nodes
from gangline.cluster.gpu_use import SAMPLE_S, Sample
from gangline.page.rows import job_key
from gangline.workloads.pending import pending_reason_of

if TYPE_CHECKING:
    from gangline.client.jobs.cluster_view import ClusterView

Obj = dict[str, Any]

QUEUE_MAX: Final = 200
GAP_S: Final = 6 * SAMPLE_S
"""A busy server may be late by a few."""
_PAIR, _QUAD, _EXACT_MAX = 2, 4, 8


def use_columns(samples: Sequence[Sample]) -> dict[str, list[int | None]]:
    """Return samples as columns; where nobody looked for a while a row without values parts them."""
    rows: list[tuple[int, int | None, int | None]] = []
    for sample in samples:
        if rows and sample.at_s - rows[-1][0] > GAP_S:
            rows.append((rows[-1][0] + SAMPLE_S, None, None))
        rows.append(sample)
    return {name: [row[index] for row in rows] for index, name in enumerate(("time", "used", "total"))}


def node_cards(view: ClusterView) -> list[Obj]:
    """Return every node with its GPUs, links, who holds them and what is free."""
    return [_card(node) for node in view_nodes(view)]


def _card(node: NodeGpuView) -> Obj:
    free = frozenset(place for place, gpu in enumerate(node.gpus) if gpu.healthy and not gpu.holder)
    return {
        "name": node.name,
        "status": node.status,
        "role": node.role,
        "model": node.model,
        "kind": node.kind,
        "total": node.total,
        "allocated": node.allocated,
        "chooser": node.chooser,
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "healthy": gpu.healthy,
                "holder": gpu.holder,
                "owner": gpu.owner,
            }
            for gpu in node.gpus
        ],
        "links": [list(row) for row in node.links],
        "holders": [
            {"name": one.name, "namespace": one.namespace, "requested": one.requested} for one in node.holders
        ],
        "free": {
            "pairs": linked_sets(node.links, free, _PAIR),
            "quads": linked_sets(node.links, free, _QUAD),
            "whole": bool(node.gpus) and len(free) == len(node.gpus),
        },
    }


def linked_sets(links: Sequence[Sequence[str]], free: frozenset[int], size: int) -> int:
    """Return how many disjoint sets of so many free GPUs there are that NVLink joins in a ring.

    Where no two are joined by NVLink, all links count as alike; so they do on nodes of more than eight.
    """
    joined = frozenset(
        (a, b) for a, row in enumerate(links) for b, link in enumerate(row) if link.startswith("NV")
    )
    if not joined or len(links) > _EXACT_MAX:
        return len(free) // size
    return _sets(joined, free, size)


@lru_cache(maxsize=4096)
def _sets(joined: frozenset[tuple[int, int]], free: frozenset[int], size: int) -> int:
    if len(free) < size:
        return 0
    first, *others = sorted(free)
    best = _sets(joined, free - {first}, size)
    for rest in combinations(others, size - 1):
        if any(_is_ring(joined, (first, *order)) for order in permutations(rest)):
            best = max(best, 1 + _sets(joined, free - {first, *rest}, size))
            if best == len(free) // size:
                break
    return best


def _is_ring(joined: frozenset[tuple[int, int]], order: tuple[int, ...]) -> bool:
    return all((one, order[(at + 1) % len(order)]) in joined for at, one in enumerate(order))


def queue_rows(view: ClusterView, keys: dict[str, str]) -> list[Obj]:
    """Return the gangs that wait for room, by priority and age; their places the explanation knows.

    Args:
        view: of the cluster.
        keys: the page's name of each job, by ``NAMESPACE/NAME``.
    """
    gangs: dict[str, list[Obj]] = {}
    for pod in view.pods:
        if pod["spec"].get("nodeName") or pod["metadata"]["uid"] not in view.views:
            continue
        gangs.setdefault(view.gang_of(pod) or _name(pod), []).append(pod)
    rows = [_gang(name, pods, view, keys) for name, pods in gangs.items()]
    rows.sort(key=lambda row: (-row["priority"], row["since"], row["gang"]))
    return rows[:QUEUE_MAX]


def _gang(name: str, pods: Sequence[Obj], view: ClusterView, keys: dict[str, str]) -> Obj:
    reason = next(filter(None, (pending_reason_of(pod, ()) for pod in pods)), None)
    first = view.views[pods[0]["metadata"]["uid"]]
    return {
        "gang": name,
        "key": keys.get(name) or keys.get(first.job, ""),
        "pods": len(pods),
        "priority": max(view.views[pod["metadata"]["uid"]].priority for pod in pods),
        "since": min(str(pod["metadata"].get("creationTimestamp") or "") for pod in pods),
        "reason": reason.kind if reason else "",
        "message": str(reason or ""),
    }


def _name(pod: Obj) -> str:
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


def keys_by_name(rows: Sequence[Any]) -> dict[str, str]:
    """Return the page's name of each job by ``NAMESPACE/NAME``; of two of one name the later."""
    return {f"{row.namespace}/{row.name}": job_key(row.kind, row.namespace, row.name) for row in rows}
