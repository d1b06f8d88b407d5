"""One request and what is known of it: parameters, body, the form that the client wants back.

Bodies come as JSON, YAML or (from Go programs) protobuf; answers are JSON always. Forms of an answer: the
object, a Table (``kubectl get``), or metadata alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from aiohttp import web
from multidict import MultiMapping

from gangline.api.decode import is_deeper
from gangline.local.apiserver import failures
from gangline.local.apiserver.auth import User
from gangline.local.apiserver.field_types import message_type_errors
from gangline.local.apiserver.registry import Target
from gangline.local.apiserver.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)

DEPTH_MAX = 400
"""Levels of a body that is taken; a real server takes 10,000."""

BODY_BYTES_MAX = 3 << 20
"""Longest body that is read; a real server has the same limit."""

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BODY_TYPES = (JSON, YAML, PROTOBUF)

Form = Literal["object", "table", "metadata"]

encode_json = msgspec.json.Encoder().encode
decode_json = msgspec.json.Decoder().decode

_MEDIA = re.compile(r"\s*([^;,\s]+)\s*((?:;[^,]*)?)")


@dataclass(slots=True)
class Exchange:
    """A request on its way through the handlers.

    Attributes:
        request: aiohttp's request.
        user: who asks.
        target: what the path names.
        query: the query parameters.
        warnings: texts for ``Warning`` headers of the answer.
    """

    request: web.BaseRequest
    user: User
    target: Target
    query: MultiMapping[str]
    warnings: list[str] = field(default_factory=list)

    def flag(self, name: str) -> bool:
        """Return a boolean parameter: anything but absent, ``false`` in any case, and ``0`` is true."""
        value = self.query.get(name)
        return value is not None and value.lower() not in ("false", "0")

    def number(self, name: str) -> int | None:
        """Return a whole-number parameter.

        Raises:
            ApiFailure: 400.
        """
        value = self.query.get(name)
        if not value:
            return None
        try:
            return int(value)
        except ValueError:
            raise failures.bad_request(
                f'strconv.ParseInt: parsing "{value}": invalid syntax ({name})'
            ) from None

    def revision(self) -> int | None:
        """Return ``resourceVersion``; None when absent or empty.

        Raises:
            ApiFailure: 400.
        """
        value = self.query.get("resourceVersion")
        if not value:
            return None
        if not value.isdigit():
            raise failures.bad_request(f'Invalid value: "{value}": resourceVersion must be a number')
        return int(value)

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored.

        Raises:
            ApiFailure: 400 for anything but ``All``.
        """
        values = self.query.getall("dryRun", [])
        return is_dry_run(values)

    @property
    def field_validation(self) -> str:
        """``Strict``, ``Warn`` (default) or ``Ignore``."""
        value = self.query.get("fieldValidation") or "Warn"
        if value not in ("Strict", "Warn", "Ignore"):
            raise failures.bad_request(f'fieldValidation: Unsupported value: "{value}"')
        return value

    def selectors(self) -> tuple[LabelSelector | None, FieldSelector | None]:
        """Return the selectors, None where there is nothing to select by.

        Raises:
            ApiFailure: 400, a selector cannot be read or names an unsupported field.
        """
        served = self.target.served
        try:
            labels = parse_label_selector(self.query.get("labelSelector", ""))
            fields = parse_field_selector(
                self.query.get("fieldSelector", ""), served.resource, selectable=served.selectable_fields
            )
        except ValueError as error:
            raise failures.bad_request(str(error)) from None
        return (None if labels.is_empty else labels, None if fields.is_empty else fields)

    @property
    def form(self) -> Form:
        """The form of the answer, by the ``Accept`` header.

        Raises:
            ApiFailure: 406, the client takes nothing that can be written.
        """
        return accepted_form(self.request.headers.get("Accept", ""))

    @property
    def content_type(self) -> str:
        """Media type of the body without parameters; JSON when absent."""
        return self.request.headers.get("Content-Type", JSON).split(";")[0].strip().lower() or JSON

    async def body(self) -> dict[str, Any]:
        """Return the body as an object in wire form.

        Raises:
            ApiFailure: 400, 413 or 415.
        """
        return decode_body(await self.raw_body(), self.content_type)

    async def body_as(self, message: str) -> dict[str, Any]:
        """Return the body as a message that is answered, not stored, ``core/v1.Binding``; or empty.

        Raises:
            ApiFailure: 400, 413 or 415.
        """
        raw = await self.raw_body()
        body = decode_body(raw, self.content_type) if raw.strip() else {}
        if errors := message_type_errors(message, body):
            raise failures.bad_request(
                f"{message.rpartition('.')[2]} cannot be read: {'; '.join(str(error) for error in errors)}"
            )
        return body

    async def raw_body(self) -> bytes:
        """Return the body's bytes.

        Raises:
            ApiFailure: 413.
        """
        try:
            return await self.request.read()
        except web.HTTPRequestEntityTooLarge:
            raise failures.too_large_body(BODY_BYTES_MAX) from None


def is_dry_run(values: list[str]) -> bool:
    """Whether ``dryRun`` values ask for a dry run.

    Raises:
        ApiFailure: 400 for anything but ``All``.
    """
    if any(value != "All" for value in values if value):
        raise failures.bad_request(f'Invalid value: {values}: dryRun: supported values: "All"')
    return "All" in values


def accepted_form(accept: str) -> Form:
    """Return the first form of an ``Accept`` header that can be written.

    Raises:
        ApiFailure: 406.
    """
    if not accept:
        return "object"
    for media, parameters in _MEDIA.findall(accept):
        if media in ("*/*", "application/*", YAML):
            return "object"
        if media != JSON:
            continue
        if "as=Table" in parameters:
            if "v=v1beta1" not in parameters:
                return "table"
        elif "as=PartialObjectMetadata" in parameters:
            return "metadata"
        elif "as=" not in parameters:
            return "object"
    raise failures.not_acceptable()


def decode_body(raw: bytes, content_type: str) -> dict[str, Any]:
    """Return the object that a body of that type holds.

    Raises:
        ApiFailure: 400 or 415.
    """
    if content_type in (JSON, "text/json"):
        try:
            obj = decode_json(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise failures.bad_request(f"the object provided is unrecognized: {error}") from None
    elif content_type == PROTOBUF:
        from gangline.local.apiserver.protobuf import decode

        try:
            obj = decode(raw)
        except ValueError as error:
            raise failures.bad_request(f"the object provided is unrecognized: {error}") from None
    elif content_type in (YAML, "application/x-yaml", "text/yaml"):
        obj = decode_yaml(raw)
    else:
        raise failures.unsupported_media_type(content_type, BODY_TYPES)
    if not isinstance(obj, dict):
        raise failures.bad_request("the object provided is unrecognized: it is no JSON object")
    if is_deeper(obj, DEPTH_MAX):
        raise failures.bad_request(
            f"the object provided is unrecognized: it is nested in more than {DEPTH_MAX} levels"
        )
    return obj


def decode_yaml(raw: bytes) -> Any:
    """Return what one YAML document holds, in JSON's types.

    Raises:
        ApiFailure: 400.
    """
    if raw.lstrip()[:1] in (b"{", b"["):
        try:
            return decode_json(raw)
        except (msgspec.DecodeError, RecursionError):
            pass
    try:
        return msgspec.yaml.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise failures.bad_request(f"the object provided is unrecognized: {error}") from None


def answer(
    body: bytes,
    *,
    status: int = 200,
    warnings: list[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a JSON answer."""
    response = web.Response(body=body, status=status, content_type=JSON, headers=headers)
    for warning in warnings or ():
        text = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.headers.add("Warning", f'299 - "{text}"')
    return response


def failure_answer(failure: failures.ApiFailure) -> web.Response:
    """Return the answer of a request that failed."""
    return answer(encode_json(failure.status()), status=failure.code, headers=failure.headers)
