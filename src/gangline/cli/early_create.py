"""Create the objects of a run on this machine's cluster before the HTTP client is imported.

Importing the client costs as much as starting a pod; the objects are on their way meanwhile. Whatever is not
plainly new here, a name that is taken above all, is left to ``claim.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangline.api.codec import Document
from gangline.api.resources import Resource
from gangline.cli.manifests import KNOWN, in_order
from gangline.kube.apply import with_last_applied
from gangline.local.cluster import Cluster

Obj = dict[str, Any]


def create_early(cluster: Cluster, documents: Sequence[Document]) -> dict[int, Obj]:
    """Create every object in order while each is new, and return what was made by the document's ``id``.

    It stops at the first object that cannot simply be created, so that the order holds for the rest.

    Args:
        cluster: which is up.
        documents: checked manifests with their namespaces.
    """
    created: dict[int, Obj] = {}
    for document in in_order(documents):
        resource = KNOWN.get((document.api_version, document.kind))
        if resource is None:
            break
        desired = with_last_applied(document.value)
        status, answer = cluster.request("POST", resource.path(_namespace(desired)), desired)
        if status != 201:
            break
        created[id(document)] = answer
    return created


def delete_created(cluster: Cluster, documents: Sequence[Document], created: dict[int, Obj]) -> None:
    """Take back what was created, last first; used when the command is interrupted right after."""
    for document in reversed(in_order(documents)):
        obj = created.get(id(document))
        if obj is None:
            continue
        resource: Resource = KNOWN[document.api_version, document.kind]
        cluster.request("DELETE", resource.path(_namespace(obj), obj["metadata"]["name"]), {})


def _namespace(obj: Obj) -> str | None:
    namespace: str | None = obj["metadata"].get("namespace")
    return namespace
