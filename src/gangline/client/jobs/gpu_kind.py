"""Whether the GPUs that a command shows are real or simulated: asked of the nodes, said wherever they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gangline.workloads.gpu_source import SOURCE_LABEL, gpus_in_words, kind_of

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectReader

Obj = dict[str, Any]


async def gpu_kind(client: ObjectReader, jobs: Iterable[Obj]) -> str:
    """Return ``simulated``, ``real``, or an empty text where nodes do not say or no job asks for a GPU."""
    from gangline.api.resources import NODES
    from gangline.kube.errors import ApiError
    from gangline.workloads.job_state import requested_gpus

    if not any(requested_gpus(job) for job in jobs):
        return ""
    try:
        nodes = (await client.list(NODES)).items
    except ApiError:  # a user who may not see nodes
        return ""
    return kind_of_nodes(nodes)


def kind_of_nodes(nodes: Iterable[Obj]) -> str:
    """Return ``simulated`` when any node's GPUs are, else ``real`` when a node agent of ours says so."""
    sources = [(node["metadata"].get("labels") or {}).get(SOURCE_LABEL, "") for node in nodes]
    kinds = {kind_of(source) for source in sources}
    return "simulated" if "simulated" in kinds else "real" if "real" in kinds else ""


def gpus_of_pods(pods: Iterable[Obj], kind: str) -> str:
    """Return ``2 simulated GPUs`` for all that the pods ask for, empty for none."""
    from gangline.workloads.requests import pod_gpus

    count = sum(pod_gpus(pod["spec"]) for pod in pods)
    return gpus_in_words(count, kind) if count else ""


def gpu_cell(count: int | None, kind: str) -> str:
    """Return what a table shows: ``8 simulated``, ``8``, ``N/A``."""
    if count is None:
        return "N/A"
    return f"{count} simulated" if count and kind == "simulated" else str(count)
