"""What every cluster has from its first moment: namespaces, priority and storage classes, roles."""

from __future__ import annotations

import asyncio
from typing import Any

from gangline.api import resources as r
from gangline.cluster.api_access import SERVICE_SUBNET
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.rbac.default_roles import CLUSTER_ROLE_BINDING, cluster_roles
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.verbs.writing import create_object

NAMESPACE_NAMES = ("default", "kube-system", "kube-public", "kube-node-lease")

PRIORITY_CLASSES: tuple[dict[str, Any], ...] = (
    {
        "metadata": {"name": "system-cluster-critical"},
        "value": 2000000000,
        "description": "Used for system critical pods that must run in the cluster, but can be moved to "
        "another node if necessary.",
    },
    {
        "metadata": {"name": "system-node-critical"},
        "value": 2000001000,
        "description": "Used for system critical pods that must not be moved from their current node.",
    },
)

STORAGE_CLASS: dict[str, Any] = {
    "metadata": {
        "name": "standard",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "gangline.dev/folder",
}
"""Folders of this machine."""

SERVICE_CIDRS = r.Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", namespaced=False)
SERVICE_CIDR: dict[str, Any] = {
    "metadata": {"name": "kubernetes"},
    "spec": {"cidrs": [SERVICE_SUBNET]},
}


async def bootstrap(api: ApiContext) -> None:
    """Create what is missing; one flush of the store."""
    writes = []
    for resource, objects in (
        (r.NAMESPACES, [{"metadata": {"name": name}} for name in NAMESPACE_NAMES]),
        (r.PRIORITY_CLASSES, list(PRIORITY_CLASSES)),
        (r.STORAGE_CLASSES, [STORAGE_CLASS]),
        (SERVICE_CIDRS, [SERVICE_CIDR]),
        (r.CLUSTER_ROLES, cluster_roles(api.registry.rows)),
        (r.CLUSTER_ROLE_BINDINGS, [CLUSTER_ROLE_BINDING]),
    ):
        served = api.registry.find(resource.group, resource.version, resource.plural)
        assert served is not None
        for obj in objects:
            target = RequestTarget(served, "")
            if api.store.latest(target.collection, "", obj["metadata"]["name"]) is None:
                writes.append(create_object(api, target, obj))
    await asyncio.gather(*writes)
