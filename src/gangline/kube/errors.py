"""What an API server answers when it refuses, as exceptions.

::

    ClusterError (gangline.errors)
    └── ApiError               status, reason, message, details, retry_after_s
        ├── BadRequest         400
        ├── Unauthorized       401
        ├── Forbidden          403
        ├── NotFound           404
        ├── Conflict           409 the object has been modified: read it again and decide again
        ├── AlreadyExists      409 with its own reason
        ├── Gone               410 the version or page token is too old: list again
        ├── Invalid            422
        ├── TooManyRequests    429
        ├── ServerError        500 and above
        └── Unavailable        no answer at all (status 0), or 503

    UserError (gangline.errors)
    └── KubeconfigError        a kubeconfig, or what it names, cannot be used

Nothing of the transport library leaves this package.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangline.errors import ClusterError, FieldError, UserError

_quoted_body_bytes_max = 300


class ApiError(ClusterError):
    """The API server refused a request.

    Attributes:
        status: the HTTP status; 0 when no answer came.
        reason: the reason of the Kubernetes Status, for example ``NotFound``; empty when there was none.
        details: the ``details`` of the Status, for example ``{"name": "x", "kind": "pods"}``.
        retry_after_s: how long the server asks to wait before the next try, or None.
    """

    code = "api"
    retryable = False
    """Whether the same request may succeed later without a change."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        retry_after_s: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason
        self.details = details or {}
        self.retry_after_s = retry_after_s

    @property
    def field_errors(self) -> list[FieldError]:
        """The broken rules that the server names, in its order; empty when it names none."""
        causes = self.details.get("causes") or []
        return [
            FieldError(
                cause.get("reason", "").removeprefix("FieldValue"),
                cause.get("field", ""),
                cause.get("message", ""),
            )
            for cause in causes
        ]


class BadRequest(ApiError):
    """400: the request makes no sense to the server."""

    code = "bad-request"


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""

    code = "unauthorized"


class Forbidden(ApiError):
    """403: this user may not do this."""

    code = "forbidden"


class NotFound(ApiError):
    """404: no such object, or no such kind (then ``details`` names no object)."""

    code = "not-found"


class Conflict(ApiError):
    """409: the object has changed since it was read."""

    code = "conflict"


class AlreadyExists(ApiError):
    """409 ``AlreadyExists``: an object of that name is there."""

    code = "already-exists"


class Gone(ApiError):
    """410: the resource version or the page token is too old; list again."""

    code = "gone"


class Invalid(ApiError):
    """422: the object breaks rules; ``field_errors`` names them."""

    code = "invalid"


class TooManyRequests(ApiError):
    """429: the server is shedding load."""

    code = "too-many-requests"
    retryable = True


class ServerError(ApiError):
    """500 and above: the server failed."""

    code = "server-error"
    retryable = True


class Unavailable(ApiError):
    """No answer came (status 0), or the server says that it is not ready (503)."""

    code = "unavailable"
    retryable = True


class KubeconfigError(UserError):
    """A kubeconfig, a file that it names or a credential plugin cannot be used."""

    code = "bad-kubeconfig"


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
    503: Unavailable,
}


class _Status(msgspec.Struct):
    """The ``metav1.Status`` of a refusal, as far as it is read."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


_decode_status = msgspec.json.Decoder(_Status).decode


def error_from_body(
    status: int, body: bytes | msgspec.Raw, *, doing: str = "", retry_after: str = ""
) -> ApiError:
    """Return the error for an answer.

    Args:
        status: the HTTP status; 0 for a Status that came inside a stream (its own ``code`` counts then).
        body: a Status in JSON, or any text.
        doing: what was asked, for example ``GET /api/v1/pods``; used when the body says nothing.
        retry_after: the value of the header ``Retry-After``, in seconds.
    """
    try:
        answer = _decode_status(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        answer = _Status()
    status = status or answer.code or 500
    message = answer.message
    if not message:
        text = bytes(body)[:_quoted_body_bytes_max].decode("utf-8", "replace").strip()
        message = f"{doing or 'the request'} was answered with status {status}" + (
            f": {text}" if text and not answer.kind else ""
        )
    details = answer.details or {}
    delay = retry_after if retry_after.isdigit() else details.get("retryAfterSeconds")
    return error_class(status, answer.reason)(
        status, answer.reason, message, details, retry_after_s=float(delay) if delay else None
    )


def error_class(status: int, reason: str) -> type[ApiError]:
    """Return the class for a status and the reason of its Status object."""
    if reason == "AlreadyExists":
        return AlreadyExists
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return ServerError if status >= 500 else ApiError
