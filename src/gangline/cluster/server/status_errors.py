"""Every way in which a request can fail, as the ``Status`` objects of the Kubernetes API.

Source: k8s.io/apimachinery api/errors; reasons by code as in the published API conventions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangline.cluster.server.resources import ServedResource
from gangline.errors import FieldError

CAUSES_MAX = 100
"""Broken rules that one answer tells of; an object may break hundreds of thousands."""


class StatusError(Exception):
    """A request ends with this ``Status``.

    Attributes:
        code: HTTP status.
        reason: machine-readable reason, such as ``NotFound``.
        details: ``Status.details``.
        headers: further HTTP headers of the answer.
        metadata: ``Status.metadata``.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.headers = headers or {}
        self.metadata: dict[str, Any] = {}

    def status(self) -> dict[str, Any]:
        """Return the ``Status`` object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(served: ServedResource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": served.resource.group, "kind": served.resource.plural}
    return {key: value for key, value in details.items() if value}


def qualified(served: ServedResource) -> str:
    """Return ``PLURAL`` or ``PLURAL.GROUP``, as messages spell a resource."""
    resource = served.resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def not_found(served: ServedResource, name: str) -> StatusError:
    """The object does not exist."""
    message = f'{qualified(served)} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(served, name))


def no_such_path() -> StatusError:
    """The path is not served at all; clients tell it from a missing object by the absent name."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(served: ServedResource, name: str) -> StatusError:
    """Create found an object of that name."""
    message = f'{qualified(served)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(served, name))


def conflict(served: ServedResource, name: str, cause: str = "") -> StatusError:
    """A precondition (resourceVersion, uid) does not hold."""
    cause = cause or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    message = f'Operation cannot be fulfilled on {qualified(served)} "{name}": {cause}'
    return StatusError(409, "Conflict", message, _details(served, name))


def bad_request(message: str) -> StatusError:
    """The request itself makes no sense."""
    return StatusError(400, "BadRequest", message)


_REASONS = {
    "Required": "FieldValueRequired",
    "Invalid": "FieldValueInvalid",
    "NotSupported": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Duplicate": "FieldValueDuplicate",
    "TypeInvalid": "FieldValueTypeInvalid",
    "TooLong": "FieldValueTooLong",
    "NotFound": "FieldValueNotFound",
}
_WORDS = {
    "Required": "Required value",
    "Invalid": "Invalid value",
    "NotSupported": "Unsupported value",
    "Forbidden": "Forbidden",
    "Duplicate": "Duplicate value",
    "TypeInvalid": "Invalid value",
    "TooLong": "Too long",
    "NotFound": "Not found",
}


def invalid(served: ServedResource, name: str, errors: Sequence[FieldError]) -> StatusError:
    """The object breaks rules: every one of them, as message and as causes."""
    causes = []
    texts = []
    for error in errors[:CAUSES_MAX]:
        shown = (
            error.reason in ("Invalid", "NotSupported", "Duplicate", "TypeInvalid", "NotFound")
            and error.value
        )
        word = _WORDS.get(error.reason, error.reason)
        text = f"{word}: {error.value}: {error.message}" if shown else f"{word}: {error.message}"
        if error.message == word:
            text = word
        texts.append(f"{error.path}: {text}" if error.path else text)
        causes.append(
            {
                "reason": _REASONS.get(error.reason, "FieldValueInvalid"),
                "message": text,
                "field": error.path,
            }
        )
    if len(errors) > CAUSES_MAX:
        texts.append(f"and {len(errors) - CAUSES_MAX} more")
    rules = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind, group = served.resource.kind, served.resource.group
    subject = f"{kind}.{group}" if group else kind
    details = {"name": name, "group": group, "kind": kind, "causes": causes}
    details = {key: value for key, value in details.items() if value}
    return StatusError(422, "Invalid", f'{subject} "{name}" is invalid: {rules}', details)


def unprocessable(message: str) -> StatusError:
    """The request is well formed and cannot be done."""
    return StatusError(422, "Invalid", message)


def unauthorized() -> StatusError:
    """No, or no valid, credentials."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(
    user: str, verb: str, served: ServedResource, namespace: str, name: str = "", subresource: str = ""
) -> StatusError:
    """The user may not do this."""
    what = f"{served.resource.plural}/{subresource}" if subresource else served.resource.plural
    subject = f'{qualified(served)} "{name}"' if name else qualified(served)
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    message = (
        f'{subject} is forbidden: User "{user}" cannot {verb} resource "{what}" '
        f'in API group "{served.resource.group}" {scope}'
    )
    return StatusError(403, "Forbidden", message, _details(served, name))


def forbidden_path(user: str, path: str) -> StatusError:
    """The user may not read this path, which is no resource."""
    return StatusError(403, "Forbidden", f'forbidden: User "{user}" cannot get path "{path}"')


def refused(
    served: ServedResource, name: str, cause: str, causes: list[dict[str, str]] | None = None
) -> StatusError:
    """Admission says no."""
    details = _details(served, name)
    if causes:
        details["causes"] = causes
    return StatusError(403, "Forbidden", f'{qualified(served)} "{name}" is forbidden: {cause}', details)


def expired(message: str) -> StatusError:
    """The revision asked for is not kept any more."""
    return StatusError(410, "Expired", message)


def too_large_revision(asked: int, current: int) -> StatusError:
    """The revision asked for does not exist yet."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


def unsupported_media_type(found: str, accepted: Sequence[str]) -> StatusError:
    """The body is of a type that is not read here."""
    message = (
        f"the body of the request was in an unknown format ({found}) - "
        f"accepted media types include: {', '.join(accepted)}"
    )
    return StatusError(415, "UnsupportedMediaType", message)


def not_acceptable() -> StatusError:
    """The client takes no form that the server can write."""
    message = "only the following media types are accepted: application/json"
    return StatusError(406, "NotAcceptable", message)


def method_not_allowed(method: str) -> StatusError:
    """The path exists; the method does not fit it."""
    message = f"the server does not allow this method on the requested resource: {method}"
    return StatusError(405, "MethodNotAllowed", message)


def not_implemented(what: str) -> StatusError:
    """A part of Kubernetes that the one-machine cluster does not have."""
    message = f"{what} is not implemented by the API server of the one-machine cluster"
    return StatusError(501, "NotImplemented", message)


def too_large_body(limit_bytes: int, found_bytes: int = 0) -> StatusError:
    """The body is longer than the server reads."""
    found = f", found {found_bytes}" if found_bytes else ""
    return too_large(f"limit is {limit_bytes}{found}")


def too_large(message: str) -> StatusError:
    """What was asked for is, or would become, too large."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def body_timeout(timeout_s: float) -> StatusError:
    """The body did not come; the connection is of no more use."""
    message = f"the body of the request did not come within {timeout_s:.0f} s"
    return StatusError(408, "Timeout", message, headers={"Connection": "close"})


def encoded_body(encoding: str) -> StatusError:
    """The body is compressed: a few bytes of it may ask for gigabytes."""
    message = f"bodies with Content-Encoding ({encoding[:64]}) are not read here; send it as it is"
    return StatusError(415, "UnsupportedMediaType", message, headers={"Accept-Encoding": "identity"})


def too_many_requests(message: str, retry_after_s: int = 1) -> StatusError:
    """The server has enough to do."""
    details = {"retryAfterSeconds": retry_after_s}
    return StatusError(429, "TooManyRequests", message, details, {"Retry-After": str(retry_after_s)})


def not_kept(message: str, *, is_full: bool) -> StatusError:
    """The store could not keep a write; nothing of it is visible, and it may be tried again."""
    code, reason = (507, "InsufficientStorage") if is_full else (503, "ServiceUnavailable")
    return StatusError(code, reason, message, {"retryAfterSeconds": 5}, {"Retry-After": "5"})


def internal_error(message: str) -> StatusError:
    """Our own fault."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")
