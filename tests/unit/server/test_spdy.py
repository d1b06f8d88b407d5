"""SPDY/3.1 as kubectl's tunnel for ports speaks it."""

import struct
import zlib

import pytest

from gangline.cluster.server.streams.spdy import DICTIONARY, SpdyConnection, SpdyError, data_frame


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
