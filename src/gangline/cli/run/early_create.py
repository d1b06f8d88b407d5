"""Create the objects of a run on this machine's cluster before the HTTP client is imported.

Importing the client costs as much as starting a pod; the objects are on their way meanwhile. Whatever is not
plainly new here, a name that is taken above all, is left to ``claim.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, cast

from gangline.api.codec import Document
from gangline.api.resources import Resource
from gangline.cli.options.manifests import KNOWN, in_order
from gangline.cli.output import say
from gangline.cli.run.creation import CREATIONS_MAX, is_same_creation, with_creation_mark
from gangline.cluster.daemon.cluster import Cluster
from gangline.errors import ClusterError
from gangline.kube.apply import with_last_applied

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
        answer = _create(cluster, resource, with_last_applied(document.value))
        if answer is None:
            break
        created[id(document)] = answer
    return created


def _create(cluster: Cluster, resource: Resource, obj: Obj) -> Obj | None:
    """Create one object, exactly once also when the server is killed under it; None when it is not new."""
    marked = with_creation_mark(obj)
    for _ in range(CREATIONS_MAX):
        try:
            status, answer = cluster.request("POST", resource.path(_namespace(marked)), marked)
            if status == 201:
                return cast(Obj, answer)
            if status != HTTPStatus.CONFLICT:
                return None
        except ClusterError:
            cluster.ensure_up(say=say)
        status, live = cluster.request("GET", resource.path(_namespace(marked), marked["metadata"]["name"]))
        if status == HTTPStatus.OK:
            return cast(Obj, live) if is_same_creation(live, marked) else None
    return None


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
