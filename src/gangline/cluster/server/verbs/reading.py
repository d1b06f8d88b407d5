"""GET and LIST."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from aiohttp import web

from gangline import clock
from gangline.cluster.server import status_errors
from gangline.cluster.server.http.request_context import RequestContext, answer, encode_json
from gangline.cluster.server.store.events import Entry
from gangline.cluster.server.store.store import Store
from gangline.cluster.server.wire import rendering
from gangline.cluster.server.wire.selectors import FieldSelector, LabelTerms

LIST_LIFETIME_S = 300
"""In which a list is to be read by pages: as long as etcd keeps a revision for a real server."""
_ANY_REVISION = -1
"""Of a token for the rest of a list whose first pages are of a revision that is no longer kept."""


def check_revision(store: Store, revision: int | None) -> None:
    """Refuse a revision that is not there yet.

    Raises:
        StatusError: 504.
    """
    if revision is not None and revision > store.revision:
        raise status_errors.too_large_revision(revision, store.revision)


def include_object(context: RequestContext) -> str:
    """Return what rows of a Table carry: ``None``, ``Metadata`` (default) or ``Object``."""
    value = context.query.get("includeObject") or "Metadata"
    if value not in ("None", "Metadata", "Object"):
        raise status_errors.bad_request(f'includeObject: Unsupported value: "{value}"')
    return value


def get_object(store: Store, context: RequestContext) -> web.Response:
    """Answer GET of one object."""
    target = context.target
    check_revision(store, context.revision())
    entry = store.get(*target.key)
    if entry is None:
        raise status_errors.not_found(target.served, target.name)
    return answer(rendering.single(entry, target.served, context.form, include_object(context)))


def select(
    store: Store,
    collection: str,
    namespace: str | None,
    labels: LabelTerms | None,
    fields: FieldSelector | None,
) -> list[Entry]:
    """Return the objects that match, ordered by namespace and name.

    O(1) when a name is demanded, O(found) when a value of a label is.
    """
    if fields is not None and (name := fields.exact("metadata.name")) is not None:
        space = namespace if namespace is not None else fields.exact("metadata.namespace")
        if space is not None:
            found = store.get(collection, space, name)
            entries = [found] if found is not None else []
        else:
            entries = [e for e in store.entries(collection) if e.obj["metadata"]["name"] == name]
    else:
        wanted = labels.exact() if labels is not None else None
        found_by_label = store.labelled(collection, namespace, *wanted) if wanted else None
        entries = store.entries(collection, namespace) if found_by_label is None else found_by_label
        if labels is not None and found_by_label is not None and len(labels.requirements) == 1:
            labels = None  # the index has answered it
    if labels is not None:
        entries = [e for e in entries if labels.matches(e.obj["metadata"].get("labels"))]
    if fields is not None:
        entries = [e for e in entries if fields.matches(e.obj)]
    return entries


def namespace_of(context: RequestContext) -> str | None:
    """Return the namespace that a collection request is limited to; None is all of them."""
    target = context.target
    if not target.served.resource.namespaced:
        return ""
    return target.namespace or None


async def list_objects(store: Store, context: RequestContext) -> web.Response:
    """Answer LIST.

    Pages are cut from the present, and all of them carry the revision of the first: a watch from there
    replays whatever changed while the client was paging. When that revision is no longer kept, the next page
    is refused with 410, as a compacted one is elsewhere, and with a token for the rest, which is of
    the present and so not of one piece with the pages before.
    """
    target = context.target
    served = target.served
    labels, fields = context.selectors()
    revision = context.revision()
    match = context.query.get("resourceVersionMatch", "")
    if match and match not in ("Exact", "NotOlderThan"):
        raise status_errors.bad_request(f'resourceVersionMatch: Unsupported value: "{match}"')
    token = context.query.get("continue", "")
    if token and revision:
        raise status_errors.bad_request("specifying resource version is not allowed when using continue")
    check_revision(store, revision)
    if match == "Exact" and revision is not None and revision != store.revision:
        raise status_errors.expired(f"The provided resource version is no longer available: {revision}")
    entries = select(store, target.collection, namespace_of(context), labels, fields)
    limit = context.number("limit") or 0
    metadata: dict[str, Any] = {"resourceVersion": str(store.revision)}
    begun_s = now_s = int(clock.now().timestamp())
    if token:
        first_revision, after, begun_s = _read_token(token)
        if first_revision == _ANY_REVISION:
            first_revision = store.revision
        if not store.ring.knows(first_revision) or now_s > begun_s + LIST_LIFETIME_S:
            failure = status_errors.expired("The provided continue parameter is too old")
            failure.metadata = {"continue": _make_token(_ANY_REVISION, after, now_s)}
            raise failure
        metadata["resourceVersion"] = str(first_revision)
        entries = [entry for entry in entries if _place(entry) > after]
    # As elsewhere, "any version will do" is answered whole.
    if limit > 0 and revision != 0 and len(entries) > limit:
        rest = len(entries) - limit
        entries = entries[:limit]
        metadata["continue"] = _make_token(int(metadata["resourceVersion"]), _place(entries[-1]), begun_s)
        if labels is None and fields is None:
            metadata["remainingItemCount"] = rest
    body = await rendering.listing(entries, served, context.form, include_object(context), metadata)
    return answer(body)


def _place(entry: Entry) -> tuple[str, str]:
    metadata = entry.obj["metadata"]
    return (metadata.get("namespace", ""), metadata["name"])


def _make_token(revision: int, after: tuple[str, str], begun_s: int) -> str:
    return base64.urlsafe_b64encode(encode_json([revision, *after, begun_s])).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, tuple[str, str], int]:
    """Return the revision of the first page, behind what to go on, and when the list was begun."""
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        revision, namespace, name, begun_s = msgspec.json.decode(text, type=tuple[int, str, str, int])
    except (ValueError, RecursionError):  # msgspec's and base64's errors are of the first kind
        raise status_errors.bad_request("continue key is not valid") from None
    return revision, (namespace, name), begun_s
