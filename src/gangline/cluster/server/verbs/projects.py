"""OpenShift's projects: namespaces under another name, and the request that makes one.

Source: project.openshift.io/v1 Project, ProjectRequest; ``oc new-project`` sends the latter.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gangline.api import resources as r
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.request_context import RequestContext, answer
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.resources import PROJECTS, ServedResource
from gangline.cluster.server.verbs import deleting, writing
from gangline.cluster.server.wire import rendering

_ANNOTATIONS = {"displayName": "openshift.io/display-name", "description": "openshift.io/description"}
"""Fields of a request, and where they stand on the namespace."""


async def create_requested(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer POST of a ProjectRequest: the project, whose namespace is made.

    Raises:
        StatusError: 409 it is there, 422 no name.
    """
    body = await context.body()
    metadata: dict[str, Any] = {**(body.get("metadata") or {})}
    projects, namespaces = _row(api, PROJECTS), _row(api, r.NAMESPACES)
    name = str(metadata.get("name") or "")
    if api.store.latest("/namespaces", "", name) is not None:
        raise status_errors.already_exists(projects, name)
    said = {key: str(body.get(field) or "") for field, key in _ANNOTATIONS.items()}
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        **said,
        "openshift.io/requester": context.user.name,
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    target = RequestTarget(namespaces, "")
    entry = await writing.create_object(api, target, namespace, dry_run=context.dry_run)
    return answer(rendering.object_bytes(entry, projects), status=201)


async def delete(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer DELETE of a project: its namespace goes, with all that is in it."""
    context.target = RequestTarget(_row(api, r.NAMESPACES), "", context.target.name)
    return await deleting.delete(api, context)


def _row(api: ApiContext, resource: r.Resource) -> ServedResource:
    found = api.registry.find(resource.group, resource.version, resource.plural)
    assert found is not None  # both are built in
    return found
