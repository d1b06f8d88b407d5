"""The frames of SPDY/3.1 that a client of ``portforward`` needs. Bytes in, events out; nothing is sent here.

Source: SPDY protocol, draft 3.1, sections 2.2 (framing), 2.6 (control frames) and 2.6.10.1 (dictionary).
There is no flow control, as there is none in the clients: what is not read holds back the whole connection.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

CONTROL_BYTES_MAX = 64 << 10
DATA_BYTES_MAX = (1 << 24) - 1
_VERSION = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 1
_HEADERS_AT = 10  # in a SYN_STREAM, after stream, associated stream, priority and slot
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date etag "
    "expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since "
    "last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer "
    "retry-after server te trailer transfer-encoding upgrade user-agent vary via warning "
    "www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin"
)
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    words = (word.replace("_", " ").encode() for word in _WORDS.split())
    return b"".join(struct.pack("!I", len(word)) + word for word in words) + _REST.encode()


DICTIONARY = _dictionary()
"""What both sides' header compression starts from: 1,423 bytes, Adler-32 e3c6a7c2."""


class SpdyError(Exception):
    """What came is no SPDY/3.1."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a client has sent about one stream.

    Attributes:
        stream: its number.
        headers: of a stream that it opens, else None.
        data: bytes that have come on it.
        ends: whether nothing more comes on it.
        is_reset: whether the client wants nothing more of it either.
    """

    stream: int
    headers: Mapping[str, str] | None = None
    data: bytes = b""
    ends: bool = False
    is_reset: bool = False


@dataclass
class SpdyConnection:
    """The server's side of one connection.

    Attributes:
        replies: frames to be sent back for what has been fed, to be taken by the caller.
    """

    replies: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._buffer = bytearray()
        self._data_stream = self._data_left = 0
        self._data_ends = False
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def feed(self, data: bytes | bytearray) -> Iterator[Event]:
        """Take bytes, yield what they tell; data as it comes.

        Raises:
            SpdyError: they are no SPDY/3.1.
        """
        self._buffer += data
        while True:
            if self._data_left:
                if not self._buffer:
                    return
                piece = bytes(self._buffer[: self._data_left])
                del self._buffer[: len(piece)]
                self._data_left -= len(piece)
                yield Event(self._data_stream, data=piece, ends=self._data_ends and not self._data_left)
                continue
            if len(self._buffer) < 8:
                return
            first, second = struct.unpack_from("!II", self._buffer)
            flags, length = second >> 24, second & 0xFFFFFF
            if not first >> 31:
                del self._buffer[:8]
                self._data_stream, self._data_left = first, length
                self._data_ends = bool(flags & _FIN)
                if not length:
                    yield Event(first, ends=self._data_ends)
                continue
            if (first >> 16) & 0x7FFF != _VERSION or length > CONTROL_BYTES_MAX:
                raise SpdyError("the frame is none of SPDY/3.1, or too long")
            if len(self._buffer) < 8 + length:
                return
            body = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            yield from self._control(first & 0xFFFF, flags, body)

    def _control(self, kind: int, flags: int, body: bytes) -> Iterator[Event]:
        try:
            (number,) = struct.unpack_from("!I", body) if kind != _GOAWAY else (0,)
            if kind == _SYN_STREAM:
                headers = self._headers(body[_HEADERS_AT:])
                self.replies.append(self._syn_reply(number))
                yield Event(number, headers=headers, ends=bool(flags & _FIN))
            elif kind == _RST_STREAM:
                yield Event(number, ends=True, is_reset=True)
            elif kind == _PING and number % 2:  # an even one answers ours
                self.replies.append(_control_frame(_PING, body))
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SpdyError(f"a control frame cannot be read: {error}") from error

    def _headers(self, block: bytes) -> dict[str, str]:
        text = self._inflate.decompress(block, CONTROL_BYTES_MAX)
        (count,) = struct.unpack_from("!I", text)
        place, words = 4, []
        for _ in range(2 * min(count, CONTROL_BYTES_MAX)):
            (size,) = struct.unpack_from("!I", text, place)
            words.append(text[place + 4 : place + 4 + size].decode())
            place += 4 + size
        return dict(zip(words[::2], words[1::2], strict=True))

    def _syn_reply(self, stream: int) -> bytes:
        block = self._deflate.compress(struct.pack("!I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(_SYN_REPLY, struct.pack("!I", stream) + block)


def _control_frame(kind: int, body: bytes) -> bytes:
    return struct.pack("!HHI", 0x8000 | _VERSION, kind, len(body)) + body


PING_FRAME = _control_frame(_PING, struct.pack("!I", 2))
"""A ping of the server's; its numbers are even."""


def data_frame(stream: int, data: bytes, *, ends: bool = False) -> bytes:
    """Return a frame with data of a stream; at most ``DATA_BYTES_MAX``."""
    return struct.pack("!II", stream, (_FIN if ends else 0) << 24 | len(data)) + data
