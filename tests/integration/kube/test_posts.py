"""Short messages over TLS: what is taken, and what is refused before anybody looks at it."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from gangline.cluster.certificates import Certificates
from gangline.cluster.server.server import tcp_socket
from gangline.kube.http_paths import PathAnswer, Posted, posted_bytes_max, serve_posts


async def answers_to(folder: Path, request: bytes) -> tuple[bytes, list[Posted]]:
    """Return what the server says to a request, and the messages that it took."""
    certificates = Certificates(folder, [])
    certificates.ensure()
    taken = list[Posted]()

    async def take(posted: Posted) -> PathAnswer:
        taken.append(posted)
        return PathAnswer(200, b"taken\n")

    sock = tcp_socket("127.0.0.1", 0)
    trust = ssl.create_default_context(cafile=certificates.authority_file)
    async with serve_posts([sock], certificates.ssl_context(), take):
        port = sock.getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
    return answer, taken


async def test_a_message_is_taken_with_its_headers_and_its_whole_body(tmp_path: Path) -> None:
    request = b"POST /there?a=1 HTTP/1.1\r\nauthorization: Bearer x\r\nContent-Length: 4\r\n\r\nbody"
    answer, [posted] = await answers_to(tmp_path, request)

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\ntaken\n")
    assert (posted.path, posted.headers["Authorization"], posted.body) == ("/there", "Bearer x", b"body")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /there HTTP/1.1\r\n\r\n", 401),
        (b"POST /there HTTP/1.1\r\n\r\n", 411),
        (b"POST /there HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
        (b"POST /there HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (posted_bytes_max + 1), 413),
        (b"POST /there HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 400),
    ],
)
async def test_what_is_no_short_message_is_refused(tmp_path: Path, request_: bytes, status: int) -> None:
    answer, taken = await answers_to(tmp_path, request_)

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert not taken
