"""SPDY/3.1 as kubectl's tunnel for ports speaks it."""

import struct
import zlib

import pytest

from gangline.cluster.server.streams.channels import CLOSE, ERROR, STDERR, STDIN, STDOUT
from gangline.cluster.server.streams.spdy import DICTIONARY, PING_FRAME, SpdyConnection, SpdyError, data_frame
from gangline.cluster.server.streams.spdy_channels import SpdyChannels
from gangline.kube.pod_streams.web_socket import Piece


def syn_stream(number: int, headers: dict[str, str], compressor) -> bytes:
    text = struct.pack("!I", len(headers))
    for name, value in headers.items():
        text += struct.pack("!I", len(name)) + name.encode() + struct.pack("!I", len(value)) + value.encode()
    block = compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)
    body = struct.pack("!IIH", number, 0, 0) + block
    return struct.pack("!HHI", 0x8003, 1, len(body)) + body


def test_dictionary_is_the_published_one():
    # RFC 1950 header of a SPDY/3 block: 78 bb, then the Adler-32 of the dictionary.
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_streams_and_their_data_are_told_however_the_bytes_are_cut(size):
    compressor = zlib.compressobj(zdict=DICTIONARY)
    sent = syn_stream(1, {"streamtype": "error", "port": "80"}, compressor)
    sent += syn_stream(3, {"streamtype": "data", "port": "80"}, compressor)
    sent += data_frame(3, b"hello") + data_frame(3, b"", ends=True)
    connection = SpdyConnection()

    events = [event for at in range(0, len(sent), size) for event in connection.feed(sent[at : at + size])]

    assert [(one.stream, one.headers) for one in events[:2]] == [
        (1, {"streamtype": "error", "port": "80"}),
        (3, {"streamtype": "data", "port": "80"}),
    ]
    assert b"".join(one.data for one in events[2:]) == b"hello"
    assert [one.ends for one in events].count(True) == 1
    assert [reply[:4] for reply in connection.replies] == [b"\x80\x03\x00\x02"] * 2


def test_ping_is_sent_back_and_a_reset_ends_both_ways():
    connection = SpdyConnection()
    ping = bytes.fromhex("8003000600000004 00000001")

    events = list(connection.feed(ping + bytes.fromhex("8003000300000008 00000003 00000005")))

    assert connection.replies == [ping]
    assert [(one.stream, one.ends, one.is_reset) for one in events] == [(3, True, True)]


@pytest.mark.parametrize(
    "sent",
    [
        bytes.fromhex("8002000100000004 00000001"),  # version 2
        bytes.fromhex("80030001 00ffffff"),  # 16 MB of headers
        bytes.fromhex("800300010000000c 00000001 00000000 00000000"),  # no headers
    ],
)
def test_what_is_no_spdy_ends_the_connection(sent):
    with pytest.raises(SpdyError):
        list(SpdyConnection().feed(sent))


class Wire:
    """A connection whose other side has sent these bytes; keeps what is sent back."""

    def __init__(self, *sent: bytes) -> None:
        self.left = list(sent)
        self.answers = b""
        self.is_closed = False

    async def send(self, data: bytes) -> None:
        self.answers += data

    async def receive(self) -> Piece | None:
        return Piece(bytearray(self.left.pop(0)), True, True, False) if self.left else None

    async def close(self, timeout_s: float) -> None:
        self.is_closed = True


def opened(*kinds: str) -> list[bytes]:
    compressor = zlib.compressobj(zdict=DICTIONARY)
    return [syn_stream(2 * at + 1, {"streamtype": kind}, compressor) for at, kind in enumerate(kinds)]


async def test_a_command_has_a_stream_for_each_channel():
    wire = Wire(*opened("error", "stdin", "stdout"), data_frame(3, b"in"), data_frame(3, b"", ends=True))
    channels = SpdyChannels(wire)

    await channels.opened({STDIN, STDOUT, ERROR})

    assert [await channels.receive() for _ in range(3)] == [(STDIN, b"in"), (CLOSE, b"\0"), None]
    wire.answers = b""
    await channels.send(STDOUT, b"out")
    await channels.send(STDERR, b"nobody has opened it")
    await channels.finish({"status": "Success"})
    told = data_frame(5, b"out") + data_frame(5, b"", ends=True)
    assert wire.answers == told + data_frame(1, b'{"status": "Success"}', ends=True)
    assert wire.is_closed


async def test_a_client_that_leaves_before_its_streams_are_open_is_gone():
    with pytest.raises(ConnectionResetError):
        await SpdyChannels(Wire(*opened("error"))).opened({STDIN, ERROR})


def test_an_answer_to_our_own_ping_is_not_sent_back():
    connection = SpdyConnection()

    assert list(connection.feed(PING_FRAME)) == []
    assert connection.replies == []
