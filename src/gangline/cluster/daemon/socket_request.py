"""One JSON request over a Unix socket with the standard library alone.

The start-up path asks the API server a few small questions; importing an HTTP client for that costs more
than the answers. Everything else uses ``gangline.kube``.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from gangline.kube.socket_owner import check_folder, check_peer

REQUEST_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 64 << 20


class SocketRequestError(OSError):
    """The server cannot be reached or its answer is no HTTP."""


def socket_request(
    path: Path, method: str, target: str, body: Any = None, *, timeout_s: float = REQUEST_TIMEOUT_S
) -> tuple[int, Any]:
    """Send one request and return status and decoded answer (text when it is not JSON).

    Raises:
        SocketRequestError: no server, or it broke off.
        ForeignSocketError: the socket belongs to another user.
    """
    payload = b"" if body is None else json.dumps(body).encode()
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json\r\n"
        f"User-Agent: gangline-start\r\nContent-Type: {kind}\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    check_folder(path)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            check_peer(connection, path)
            connection.sendall(head.encode() + payload)
            answer = _read_all(connection)
    except SocketRequestError:
        raise
    except OSError as error:
        raise SocketRequestError(f"{path}: {error}") from error
    return _parse(answer)


def _read_all(connection: socket.socket) -> bytes:
    answer = bytearray()
    while chunk := connection.recv(65536):
        answer += chunk
        if len(answer) > ANSWER_BYTES_MAX:
            raise SocketRequestError("the answer is too long")
    return bytes(answer)


def _parse(answer: bytes) -> tuple[int, Any]:
    head, separator, body = answer.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    words = status_line.split()
    if not separator or len(words) < 2 or not words[1].isdigit():
        raise SocketRequestError("the answer is no HTTP")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _join_chunks(body)
    text = body.decode(errors="replace")
    if "json" in headers.get("content-type", ""):
        return int(words[1]), json.loads(text) if text else None
    return int(words[1]), text


def _join_chunks(body: bytes) -> bytes:
    joined = bytearray()
    while body:
        size_text, _, rest = body.partition(b"\r\n")
        size = int(size_text.split(b";")[0] or b"0", 16)
        if size == 0:
            break
        joined += rest[:size]
        body = rest[size + 2 :]
    return bytes(joined)
