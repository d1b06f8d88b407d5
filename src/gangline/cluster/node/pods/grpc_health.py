"""The health check of gRPC: one call of ``grpc.health.v1.Health/Check`` over HTTP/2 without TLS.

Source: health-checking.md and PROTOCOL-HTTP2.md of gRPC. What fails, and its words: pkg/probe/grpc of
Kubernetes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error

ANSWER_BYTES_MAX = 1 << 16
"""Of a server's frames; status and message need some hundred. h2 bounds nothing before a frame is whole."""
_OK, _UNIMPLEMENTED = "0", "12"
_STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


async def check_health(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str, service: str, user_agent: str
) -> str:
    """Return why a server, or one service of it, is not healthy; empty when it is.

    Raises:
        OSError: the connection ended without an answer, what came is no HTTP/2, or the service's name exceeds
            the 16 KiB of a frame.
        ValueError: a header is not text.
    """
    connection = H2Connection(H2Configuration(header_encoding="utf-8"))
    connection.initiate_connection()
    stream = connection.get_next_available_stream_id()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
        "user-agent": user_agent,
    }
    told: dict[str, str] = {}
    answer = b""
    left = ANSWER_BYTES_MAX
    try:
        connection.send_headers(stream, list(headers.items()))
        connection.send_data(stream, _request(service), end_stream=True)
        while True:
            writer.write(connection.data_to_send())
            if not (data := await reader.read(left)):
                raise ConnectionError(f"no answer in all, or the first {ANSWER_BYTES_MAX} bytes, that came")
            left -= len(data)
            for event in connection.receive_data(data):
                if isinstance(event, ResponseReceived | TrailersReceived):
                    told.update((str(name), str(value)) for name, value in event.headers or ())
                elif isinstance(event, DataReceived):
                    answer += event.data or b""
                elif isinstance(event, StreamEnded):
                    return _verdict(told, answer)
                elif isinstance(event, StreamReset | ConnectionTerminated):
                    raise ConnectionError(
                        f"the server ended the call with HTTP/2 error code {event.error_code}"
                    )
    except H2Error as error:
        raise ConnectionError(f"HTTP/2 with the server failed: {error}") from error


def _request(service: str) -> bytes:
    """Return a HealthCheckRequest, whose field 1 is the name, behind "not compressed" and its length."""
    name = service.encode()
    size = len(name)
    # A varint of 14 bits: more fits into no frame.
    length = bytes([size]) if size < 1 << 7 else bytes([size & 0x7F | 0x80, size >> 7 & 0x7F])
    message = b"\x0a" + length + name if name else b""
    return b"\0" + len(message).to_bytes(4, "big") + message


def _verdict(told: Mapping[str, str], answer: bytes) -> str:
    """Judge an answer; field 1 of a HealthCheckResponse is the status, and 0 where it is left out."""
    code, text = told.get("grpc-status"), unquote(told.get("grpc-message", ""))
    if code is None:
        return f"error: health rpc probe failed: HTTP status {told.get(':status')}, and none of gRPC"
    if code == _UNIMPLEMENTED:
        return (
            f"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {text}"
        )
    if code != _OK:
        return f"error: health rpc probe failed: rpc error: code = {code} desc = {text}"
    status = int.from_bytes(answer[6:7], "big") if answer[5:6] == b"\x08" else 0
    name = _STATUSES[status] if status < len(_STATUSES) else str(status)
    return "" if name == "SERVING" else f'service unhealthy (responded with "{name}")'
