"""The framing of WebSocket, by RFC 6455, without a network."""

import asyncio

import pytest

from gangline.kube.pod_streams.web_socket import BUFFER_BYTES, WebSocket, accept_of


class Wire(asyncio.Transport):
    """Keeps what is written; what comes is fed by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_paused = self.is_over = False

    def set_protocol(self, protocol) -> None:
        self.protocol = protocol

    def writelines(self, parts) -> None:
        self.sent += b"".join(parts)

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def feed(self, data: bytes) -> None:
        while data:
            room = self.protocol.get_buffer(-1)
            assert len(room), "more is fed than there is room for"
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.protocol.buffer_updated(count)
            data = data[count:]


def opened(*, is_client: bool = False) -> tuple[WebSocket, Wire]:
    web_socket, wire = WebSocket(is_client=is_client), Wire()
    web_socket.take(wire)
    return web_socket, wire


def test_answer_to_a_key_is_that_of_the_rfc():
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # section 1.3


async def test_frames_of_the_rfc_are_read():
    web_socket, wire = opened()
    # Section 5.7: a masked "Hello"; a fragmented one, each frame masked with 0; a ping between the two.
    wire.feed(bytes.fromhex("818537fa213d7f9f4d5158"))
    wire.feed(bytes.fromhex("018300000000") + b"Hel" + bytes.fromhex("898000000000 808200000000") + b"lo")

    whole, first, second = [await web_socket.receive() for _ in range(3)]

    assert (bytes(whole.data), whole.begins, whole.ends, whole.is_text) == (b"Hello", True, True, True)
    assert (bytes(first.data), first.begins, first.ends) == (b"Hel", True, False)
    assert (bytes(second.data), second.begins, second.ends) == (b"lo", False, True)
    assert wire.sent == bytes.fromhex("8a00")


async def test_client_masks_and_the_server_reads_the_same():
    client, to_server = opened(is_client=True)
    server, from_client = opened()
    data = bytes(range(256)) * 300

    await client.send(data)
    from_client.feed(to_server.sent[:1000])
    pieces = [await server.receive()]
    from_client.feed(to_server.sent[1000:])
    while not pieces[-1].ends:
        pieces.append(await server.receive())

    assert data not in to_server.sent
    assert b"".join(piece.data for piece in pieces) == data


async def test_sender_waits_while_a_reader_is_slow():
    web_socket, wire = opened()
    head = bytes.fromhex("82ff") + (BUFFER_BYTES * 2).to_bytes(8, "big") + bytes(4)
    wire.feed(head + bytes(BUFFER_BYTES - len(head)))

    assert wire.is_paused
    first = await web_socket.receive()
    waiting = asyncio.ensure_future(web_socket.receive())
    await asyncio.sleep(0)
    assert not wire.is_paused
    wire.feed(bytes(BUFFER_BYTES + len(head))[:BUFFER_BYTES])
    second = await waiting

    assert len(first.data) + len(second.data) == 2 * BUFFER_BYTES - len(head)


async def test_close_is_answered_once_and_ends_it():
    web_socket, wire = opened()
    wire.feed(bytes.fromhex("888200000000 03e8"))

    assert await web_socket.receive() is None
    assert wire.sent == bytes.fromhex("880203e8")
    with pytest.raises(ConnectionResetError):
        wire.close()
        await web_socket.send(b"late")


@pytest.mark.parametrize(
    "frame",
    [
        "810548656c6c6f",  # not masked by the client
        "c18000000000",  # a reserved bit
        "838000000000",  # an unknown opcode
        "89fe007e00000000",  # a ping of 126 bytes
    ],
)
async def test_other_frames_are_refused_as_broken(frame):
    web_socket, wire = opened()
    wire.feed(bytes.fromhex(frame))

    assert await web_socket.receive() is None
    assert wire.sent == bytes.fromhex("880203ea")
    assert wire.is_over
