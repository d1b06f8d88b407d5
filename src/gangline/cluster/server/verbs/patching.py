"""PATCH: which kind of patch it is, and what it makes of the object."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gangline.api.budgets import BODY
from gangline.api.decode import is_deeper
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http import off_loop
from gangline.cluster.server.http.request_context import RequestContext, decode_body, decode_plain
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.rules import strategy
from gangline.cluster.server.verbs import applying, writing
from gangline.cluster.server.verbs.patch import PatchError, json_patch, merge_patch, strategic_merge

PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


async def patch(api: ApiContext, context: RequestContext) -> web.Response:
    """Answer PATCH of an object or of its status."""
    target = context.target
    kind = patch_kind(context)
    if kind == "apply":
        return await applying.apply(api, context)
    raw = await context.raw_body()
    document = await off_loop.run_sized(len(raw), patch_document, raw, kind)

    def next_of(before: dict[str, Any]) -> dict[str, Any]:
        after = apply_patch(target, kind, before, document)
        after, context.warnings = strategy.known_patched_fields(
            target.served, before, after, context.field_validation
        )
        if after.get("spec") is not before.get("spec"):
            writing.warn_of_pods(api, context, after)
        return writing.written_state(api, context, target, before, after)

    return writing.updated(context, await writing.update_object(api, context, next_of))


def check_budget(obj: Any) -> None:
    """Refuse what a patch makes of an object if it is nested deeper than a body may be.

    Raises:
        StatusError: 422.
    """
    if is_deeper(obj, BODY.levels_max):
        raise status_errors.unprocessable(f"the patch nests values more than {BODY.levels_max} deep")


def patch_kind(context: RequestContext) -> str:
    """Return ``json``, ``merge``, ``strategic`` or ``apply``.

    Raises:
        StatusError: 415.
    """
    content_type = context.content_type
    kind = PATCH_TYPES.get(content_type)
    accepted = list(PATCH_TYPES)
    if kind == "strategic" and context.target.served.is_custom:
        accepted.remove(content_type)
        kind = None
    if kind is None:
        raise status_errors.unsupported_media_type(content_type, accepted)
    return kind


def patch_document(raw: bytes, kind: str) -> Any:
    """Return the decoded patch.

    Raises:
        StatusError: 400.
    """
    return decode_plain(raw) if kind == "json" else decode_body(raw, "application/json")


def apply_patch(target: RequestTarget, kind: str, before: dict[str, Any], document: Any) -> dict[str, Any]:
    """Return the object with the patch applied.

    Raises:
        StatusError: 400 or 422.
    """
    try:
        if kind == "merge":
            after = merge_patch(before, document)
        elif kind == "json":
            after = json_patch(before, document)
            check_budget(after)  # the other kinds nest no deeper than the object and the patch
        else:
            after = strategic_merge(target.served.resource, before, document)
    except PatchError as error:
        if error.status == 400:
            raise status_errors.bad_request(str(error)) from None
        if error.status == 413:
            raise status_errors.too_large(str(error)) from None
        raise status_errors.unprocessable(str(error)) from None
    if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
        raise status_errors.unprocessable("the patch leaves no object with metadata")
    return after
