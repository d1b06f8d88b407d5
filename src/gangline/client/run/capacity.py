"""Whether the pods of a manifest could ever run on this machine: each on some node, a job's all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gangline.api.codec import Document
from gangline.api.resources import NODES
from gangline.errors import UnschedulableError
from gangline.workloads.capacity import gang_never_fits, gang_requests, never_fits, pod_requests
from gangline.workloads.kinds import pod_templates

if TYPE_CHECKING:
    from gangline.cluster.daemon.cluster import Cluster


def check_capacity(cluster: Cluster, documents: Sequence[Document]) -> None:
    """Refuse what can never be scheduled; asks for the nodes only when something requests an amount.

    Raises:
        UnschedulableError: with the amount asked for, the most that a node has, and the field.
    """
    wanted = [
        (document, path, amounts)
        for document in documents
        for path, template in pod_templates(document.value)
        if (amounts := pod_requests(template.get("spec") or {}))
    ]
    if not wanted:
        return
    nodes = cluster.call(lambda client: client.list(NODES)).items
    for document in documents:
        if problem := gang_never_fits(gang_requests(document.value), nodes):
            raise UnschedulableError(
                f"cannot run {document.kind.lower()} `{document.name}`: its pods start together and ask for "
                f"{problem}",
                hint="lower the requests or `schedulingPolicy.minAvailable`, or run it on a cluster that has "
                "them: --context CONTEXT",
            )
    for document, path, amounts in wanted:
        problem = never_fits(amounts, nodes)
        if problem:
            raise UnschedulableError(
                f"cannot run {document.kind.lower()} `{document.name}`: a pod asks for {problem}",
                where=f"{path}spec.containers in {document.locate(f'{path}spec.containers')}",
                hint="lower the request, or run it on a cluster that has it: --context CONTEXT",
            )
