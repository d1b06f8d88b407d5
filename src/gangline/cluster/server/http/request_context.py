"""One request and what is known of it: parameters, body, the form that the client wants back.

Bodies come as JSON, YAML or (from Go programs) protobuf; answers are JSON always. Forms of an answer: the
object, a Table (``kubectl get``), or metadata alone.
"""

from __future__ import annotations

import asyncio
import re
from asyncio import IncompleteReadError
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import MultiMapping

from gangline.api.budgets import BODY, BudgetError, check_values
from gangline.api.json_reader import duplicate_fields, read_json
from gangline.cluster.server import status_errors
from gangline.cluster.server.http import off_loop
from gangline.cluster.server.http.auth import Caller
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.wire.field_types import message_type_errors
from gangline.cluster.server.wire.selectors import (
    FieldSelector,
    LabelTerms,
    parse_field_selector,
    parse_label_selector,
)
from gangline.errors import DuplicateKeyError, ManifestError

BODY_TIMEOUT_S = 30.0
"""A body has come by then; 3 MiB take less than a second on every line that reaches this server."""

NUMBER_MAX = 2**63 - 1

WARNINGS_BYTES_MAX = 4096
"""Texts of warnings of one answer, all together; a real server cuts them at the same length."""

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BODY_TYPES = (JSON, YAML, PROTOBUF)

Form = Literal["object", "table", "metadata"]

encode_json = msgspec.json.Encoder().encode
decode_json = msgspec.json.Decoder().decode

# application/json;as=Table;v=v1;g=meta.k8s.io
_MEDIA = re.compile(r"([^;,\s]+)\s*((?:;[^,]*)?)")
# what a header cannot carry
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
# -12
_NUMBER = re.compile(r"[-+]?[0-9]{1,19}")


@dataclass(slots=True)
class RequestParameters:
    """A request and its parameters.

    Attributes:
        request: aiohttp's request.
        query: the query parameters.
    """

    request: web.BaseRequest
    query: MultiMapping[str]

    def flag(self, name: str) -> bool:
        """Return a boolean parameter: anything but absent, ``false`` in any case, and ``0`` is true."""
        value = self.query.get(name)
        return value is not None and value.lower() not in ("false", "0")

    def number(self, name: str) -> int | None:
        """Return a whole-number parameter.

        Raises:
            StatusError: 400.
        """
        value = self.query.get(name)
        if not value:
            return None
        if not _NUMBER.fullmatch(value):
            raise status_errors.bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax ({name})')
        if abs(number := int(value)) > NUMBER_MAX:
            raise status_errors.bad_request(
                f'strconv.ParseInt: parsing "{value}": value out of range ({name})'
            )
        return number


@dataclass(slots=True)
class RequestContext(RequestParameters):
    """A request on its way through the handlers.

    Attributes:
        user: who asks.
        target: what the path names.
        warnings: texts for ``Warning`` headers of the answer.
        body_bytes: length of the body, once it is read: by it long work is known.
        duplicates: paths of fields that a JSON body has twice, looked for where ``fieldValidation`` is given.
    """

    user: Caller
    target: RequestTarget
    warnings: list[str] = field(default_factory=list)
    body_bytes: int = 0
    duplicates: list[str] = field(default_factory=list)

    def revision(self) -> int | None:
        """Return ``resourceVersion``; None when absent or empty.

        Raises:
            StatusError: 400.
        """
        found = self.number("resourceVersion")
        if found is not None and found < 0:
            raise status_errors.bad_request(
                f'Invalid value: "{found}": resourceVersion must be a number from 0 on'
            )
        return found

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored.

        Raises:
            StatusError: 400 for anything but ``All``.
        """
        values = self.query.getall("dryRun", [])
        return is_dry_run(values)

    @property
    def field_validation(self) -> str:
        """``Strict``, ``Warn`` (default) or ``Ignore``."""
        value = self.query.get("fieldValidation") or "Warn"
        if value not in ("Strict", "Warn", "Ignore"):
            raise status_errors.bad_request(f'fieldValidation: Unsupported value: "{value}"')
        return value

    def selectors(self) -> tuple[LabelTerms | None, FieldSelector | None]:
        """Return the selectors, None where there is nothing to select by.

        Raises:
            StatusError: 400, a selector cannot be read or names an unsupported field.
        """
        served = self.target.served
        try:
            labels = parse_label_selector(self.query.get("labelSelector", ""))
            fields = parse_field_selector(
                self.query.get("fieldSelector", ""), served.resource, selectable=served.selectable_fields
            )
        except ValueError as error:
            raise status_errors.bad_request(str(error)) from None
        return (None if labels.is_empty else labels, None if fields.is_empty else fields)

    @property
    def form(self) -> Form:
        """The form of the answer, by the ``Accept`` header.

        Raises:
            StatusError: 406, the client takes nothing that can be written.
        """
        return accepted_form(self.request.headers.get("Accept", ""))

    @property
    def content_type(self) -> str:
        """Media type of the body without parameters; JSON when absent."""
        return self.request.headers.get("Content-Type", JSON).split(";")[0].strip().lower() or JSON

    async def body(self) -> dict[str, Any]:
        """Return the body as an object in wire form.

        Raises:
            StatusError: 400, 413 or 415.
        """
        raw = await self.raw_body()
        obj = await off_loop.run_sized(len(raw), decode_body, raw, self.content_type)
        if self.content_type == JSON and self.query.get("fieldValidation") in ("Strict", "Warn"):
            self.duplicates = await off_loop.run_sized(len(raw), duplicate_fields, raw)
        return obj

    async def body_as(self, message: str) -> dict[str, Any]:
        """Return the body as a message that is answered, not stored, ``core/v1.Binding``; or empty.

        Raises:
            StatusError: 400, 413 or 415.
        """
        raw = await self.raw_body()
        body = decode_body(raw, self.content_type) if raw.strip() else {}
        if errors := message_type_errors(message, body):
            raise status_errors.bad_request(
                f"{message.rpartition('.')[2]} cannot be read: {'; '.join(str(error) for error in errors)}"
            )
        return body

    async def raw_body(self) -> bytes:
        """Return the body's bytes; as ``_read``."""
        raw = await self._read()
        self.body_bytes = len(raw)
        return raw

    async def _read(self) -> bytes:
        """Return the body's bytes.

        Raises:
            StatusError: 400 a body that is cut off or malformed, 408 one that does not come, 413 one that is
                too long; told before it is read where the header says so.
        """
        request = self.request
        if (request.content_length or 0) > BODY.bytes_max:
            raise status_errors.too_large_body(BODY.bytes_max, request.content_length or 0)
        try:
            if request.content.is_eof():  # it came with the header: nothing to wait for
                return await request.read()
            if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            async with asyncio.timeout(BODY_TIMEOUT_S):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise status_errors.too_large_body(BODY.bytes_max) from None
        except TimeoutError:
            raise status_errors.body_timeout(BODY_TIMEOUT_S) from None
        except (web.RequestPayloadError, HttpProcessingError, IncompleteReadError) as error:
            raise status_errors.bad_request(f"the body cannot be read: {error}") from None


def is_dry_run(values: list[str]) -> bool:
    """Whether ``dryRun`` values ask for a dry run.

    Raises:
        StatusError: 400 for anything but ``All``.
    """
    if any(value != "All" for value in values if value):
        raise status_errors.bad_request(f'Invalid value: {values}: dryRun: supported values: "All"')
    return "All" in values


def accepted_form(accept: str) -> Form:
    """Return the first form of an ``Accept`` header that can be written.

    Raises:
        StatusError: 406.
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
    raise status_errors.not_acceptable()


def decode_body(raw: bytes, content_type: str) -> dict[str, Any]:
    """Return the object that a body of that type holds.

    Raises:
        StatusError: 400, 413 or 415.
    """
    if content_type in (JSON, "text/json"):
        obj = decode_plain(raw)
    elif content_type in (YAML, "application/x-yaml", "text/yaml"):
        obj = decode_yaml(raw)
    elif content_type == PROTOBUF:
        from gangline.cluster.server.wire.protobuf import decode

        try:
            obj = decode(raw)
            check_values(obj, BODY)
        except (ValueError, ManifestError, RecursionError) as error:
            raise status_errors.bad_request(f"the object provided is unrecognized: {error}") from None
    else:
        raise status_errors.unsupported_media_type(content_type, BODY_TYPES)
    if not isinstance(obj, dict):
        raise status_errors.bad_request("the object provided is unrecognized: it is no JSON object")
    return obj


def decode_plain(raw: bytes) -> Any:
    """Return what a JSON body holds.

    Raises:
        StatusError: 400 or 413.
    """
    try:
        return read_json(raw, BODY)
    except ManifestError as error:
        raise _unreadable(error) from None


def decode_yaml(raw: bytes) -> Any:
    """Return what one YAML document holds, in JSON's types.

    Raises:
        StatusError: 400 or 413.
    """
    from gangline.api.yaml_reader import read_yaml

    if raw.lstrip()[:1] in (b"{", b"["):
        try:
            return read_json(raw, BODY)
        except BudgetError as error:
            raise _unreadable(error) from None
        except ManifestError:
            pass
    try:
        found = [value for value, _ in islice(read_yaml(raw, BODY, file="body"), 2)]
    except ManifestError as error:
        raise _unreadable(error) from None
    if len(found) > 1:
        raise status_errors.bad_request(
            "the object provided is unrecognized: it holds more than one document"
        )
    return found[0] if found else None


def _unreadable(error: ManifestError) -> status_errors.StatusError:
    """Return the failure of a body: 413 when it is too long, else 400 with the budget or the place."""
    if isinstance(error, BudgetError) and error.budget == "bytes":
        return status_errors.too_large_body(error.limit, error.found)
    if isinstance(error, DuplicateKeyError):
        return status_errors.bad_request(
            f'error decoding YAML: line {error.line}: key "{error.key}" already set in map'
        )
    place = f" at {error.where}" if error.where else ""
    return status_errors.bad_request(f"the object provided is unrecognized: {error.message}{place}")


def answer(
    body: bytes,
    *,
    status: int = 200,
    warnings: list[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a JSON answer."""
    response = web.Response(body=body, status=status, content_type=JSON, headers=headers)
    left = WARNINGS_BYTES_MAX
    for warning in warnings or ():
        text = _UNPRINTABLE.sub(" ", warning.replace("\\", "\\\\").replace('"', '\\"'))
        left -= len(text)
        if left < 0:
            response.headers.add("Warning", '299 - "there are more warnings than an answer carries"')
            break
        response.headers.add("Warning", f'299 - "{text}"')
    return response


def failure_answer(failure: status_errors.StatusError) -> web.Response:
    """Return the answer of a request that failed."""
    try:
        body = encode_json(failure.status())
    except UnicodeEncodeError:  # it quotes bytes of the client that are no text
        failure.message = failure.message.encode(errors="replace").decode()
        failure.details = {}
        body = encode_json(failure.status())
    return answer(body, status=failure.code, headers=failure.headers)
