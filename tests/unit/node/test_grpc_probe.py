"""gRPC probes: what is asked of a health server, and which of its answers succeed."""

import asyncio
import contextlib
from types import SimpleNamespace

import msgspec
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from gangline.api.core import Container
from gangline.cluster.node.pods.grpc_health import ANSWER_BYTES_MAX
from gangline.cluster.node.pods.handlers import HandlerRunner

TIMEOUT_S = 30.0
SERVING = b"\0\0\0\0\2\x08\1"
OK = (("grpc-status", "0"),)


class HealthServer:
    """Answers each call in the same way.

    Attributes:
        status: of HTTP.
        answer: the body, None to send headers alone.
        trailers: what follows, None to say nothing at all.
        request, body: the headers and the body of the last call.
    """

    def __init__(self, *, answer: bytes | None = SERVING, trailers=OK, status="200") -> None:
        self.status, self.answer, self.trailers = status, answer, trailers
        self.request: dict[str, str] = {}
        self.body = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        with contextlib.closing(writer):
            writer.write(connection.data_to_send())
            while data := await reader.read(65536):
                for event in connection.receive_data(data):
                    if isinstance(event, RequestReceived):
                        self.request = dict(event.headers)
                    elif isinstance(event, DataReceived):
                        self.body += event.data
                    elif isinstance(event, StreamEnded) and self.trailers is not None:
                        self._answer(connection, event.stream_id)
                writer.write(connection.data_to_send())

    def _answer(self, connection: H2Connection, stream: int) -> None:
        head = [(":status", self.status), ("content-type", "application/grpc")]
        if self.answer is None:
            connection.send_headers(stream, [*head, *self.trailers], end_stream=True)
            return
        connection.send_headers(stream, head)
        connection.send_data(stream, self.answer)
        connection.send_headers(stream, list(self.trailers), end_stream=True)


async def probe(serve, *, timeout_s: float = TIMEOUT_S, **action) -> str:
    """Run a gRPC probe of a container in which a server listens; return why it failed."""
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sandbox = SimpleNamespace(record=SimpleNamespace(address="127.0.0.1"))
        runner = HandlerRunner(msgspec.convert({"name": "main"}, Container), sandbox)
        failure = await runner.run({"grpc": {"port": port, **action}, "periodSeconds": 1}, timeout_s)
        return failure.replace(str(port), "PORT")


async def test_a_server_that_serves_succeeds_and_is_asked_as_the_kubelet_asks():
    server = HealthServer()

    assert await probe(server.serve, service="trainer") == ""

    assert server.body == b"\0\0\0\0\x09\x0a\x07trainer"
    assert server.request.pop(":authority").startswith("127.0.0.1:")
    assert server.request.pop("user-agent").startswith("kube-probe/1.")
    assert server.request == {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        "content-type": "application/grpc",
        "te": "trailers",
    }


@pytest.mark.parametrize(
    ("service", "message"),
    [("", b""), ("x" * 127, b"\x0a\x7f" + b"x" * 127), ("x" * 300, b"\x0a\xac\x02" + b"x" * 300)],
    ids=["of the whole server", "127 bytes", "300 bytes"],
)
async def test_the_name_of_the_service_is_sent_as_protobuf(service, message):
    server = HealthServer()

    assert await probe(server.serve, service=service) == ""

    assert server.body == b"\0" + len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize(
    ("server", "want"),
    [
        (HealthServer(answer=b"\0\0\0\0\2\x08\2"), 'service unhealthy (responded with "NOT_SERVING")'),
        (HealthServer(answer=b"\0\0\0\0\2\x08\3"), 'service unhealthy (responded with "SERVICE_UNKNOWN")'),
        (HealthServer(answer=b"\0\0\0\0\0"), 'service unhealthy (responded with "UNKNOWN")'),
        (
            HealthServer(
                answer=None, trailers=(("grpc-status", "12"), ("grpc-message", "unknown%20service"))
            ),
            "error: this server does not implement the grpc health protocol "
            "(grpc.health.v1.Health): unknown service",
        ),
        (
            HealthServer(answer=None, trailers=(("grpc-status", "5"), ("grpc-message", "unknown service"))),
            "error: health rpc probe failed: rpc error: code = 5 desc = unknown service",
        ),
        (
            HealthServer(trailers=(("grpc-status", "13"),)),  # an error after a message
            "error: health rpc probe failed: rpc error: code = 13 desc = ",
        ),
        (
            HealthServer(answer=None, trailers=(), status="404"),
            "error: health rpc probe failed: HTTP status 404, and none of gRPC",
        ),
    ],
    ids=["not serving", "unknown service", "unknown", "unimplemented", "not found", "internal", "no gRPC"],
)
async def test_every_other_answer_fails_and_says_why(server, want):
    assert await probe(server.serve) == want


async def test_a_server_that_does_not_answer_in_time_fails():
    assert await probe(HealthServer(trailers=None).serve, timeout_s=0.05) == "no answer within 0.05 s"


async def test_what_is_no_http_2_fails():
    async def serve(reader, writer):
        with contextlib.closing(writer):
            writer.write(b"\0\0\0\4\0\0\0\0\0" + b"\0\0\1\4\0\0\0\0\0x")  # settings of one byte
            await reader.read()

    assert (await probe(serve)).startswith("HTTP/2 with the server failed: ")


async def test_a_service_whose_name_fits_into_no_frame_fails():
    assert "failed: " in await probe(HealthServer().serve, service="x" * (1 << 16))


@pytest.mark.parametrize(
    "sent",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\xff" * 2 * ANSWER_BYTES_MAX],
    ids=["HTTP/1.1", "nothing", "a frame without end"],
)
async def test_a_connection_without_an_answer_fails(sent):
    async def serve(reader, writer):
        with contextlib.closing(writer):
            await reader.read(65536)
            writer.write(sent)
            if len(sent) > ANSWER_BYTES_MAX:
                await reader.read()  # until the probe gives up

    assert await probe(serve) == "no answer in all, or the first 65536 bytes, that came"


async def test_nobody_listening_fails():
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
    sandbox = SimpleNamespace(record=SimpleNamespace(address="127.0.0.1"))
    runner = HandlerRunner(msgspec.convert({"name": "main"}, Container), sandbox)

    assert "Connect call failed" in await runner.run({"grpc": {"port": port}}, TIMEOUT_S)
