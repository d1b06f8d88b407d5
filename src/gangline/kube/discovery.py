"""Which path serves a kind: known ones from a table, others by asking the server."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from gangline.api.resources import BUILT_IN, JOB_RESOURCES, Resource
from gangline.kube.errors import NotFound, ServerError

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

_KNOWN: dict[tuple[str, str], Resource] = {
    (resource.api_version, resource.kind): resource for resource in (*BUILT_IN, *JOB_RESOURCES)
}


class _ApiResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] | None = None


_asked: WeakKeyDictionary[ObjectClient, dict[tuple[str, str], Resource]] = WeakKeyDictionary()
"""What each client's server has answered."""


async def resource_for(client: ObjectClient, api_version: str, kind: str) -> Resource:
    """Return where a kind lives. One request for each unknown API version, then none.

    Raises:
        NotFound: the server does not serve the kind; its definition (CRD) may be missing.
        ApiError: the server refused, or could not be reached.
    """
    key = api_version, kind
    if key in _KNOWN:
        return _KNOWN[key]
    answers = _asked.setdefault(client, {})
    if key not in answers:  # ask again each time: a definition may have been installed meanwhile
        answers.update(await _ask(client, api_version))
    if key not in answers:
        raise _not_served(api_version, kind)
    return answers[key]


async def _ask(client: ObjectClient, api_version: str) -> dict[tuple[str, str], Resource]:
    group, _, version = api_version.rpartition("/")
    root = Resource(group, version, "", "").root
    try:
        body = await client.send("GET", root)
        served = msgspec.json.decode(body, type=_ApiResourceList).resources or []
    except NotFound:
        return {}
    except msgspec.MsgspecError as error:
        raise ServerError(0, "", f"the resources at {root} cannot be read: {error}") from error
    return {
        (api_version, entry.kind): Resource(group, version, entry.name, entry.kind, entry.namespaced)
        for entry in served
        if "/" not in entry.name  # subresources
    }


def _not_served(api_version: str, kind: str) -> NotFound:
    return NotFound(
        404,
        "NotFound",
        f"the server has no kind `{kind}` in `{api_version}`",
        hint="check apiVersion and kind, or install its CustomResourceDefinition first",
    )
