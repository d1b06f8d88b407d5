"""WebSocket (RFC 6455) over a connection that both sides have agreed on; for the client and for the server.

Messages pass in pieces as they come, so that none has to fit into memory: a reader that is slow makes the
other side wait. Nothing is compressed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
from base64 import b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

BUFFER_BYTES: Final = 256 << 10
"""What waits for its reader; the other side is made to wait when it is full."""
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_CONTROL_BYTES_MAX = 125
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_NORMAL = struct.pack("!H", 1000)
_BROKEN = struct.pack("!H", 1002)
_XOR = [bytes(value ^ key for value in range(256)) for key in range(256)]


def new_key() -> str:
    """Return a ``Sec-WebSocket-Key``."""
    return b64encode(os.urandom(16)).decode()


def accept_of(key: str) -> str:
    """Return the ``Sec-WebSocket-Accept`` that answers a key."""
    return b64encode(hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()).decode()


def mask(key: bytes, data: bytearray) -> None:
    """Mask or unmask data in place; about 0.7 GB/s."""
    for index in range(4):
        data[index::4] = data[index::4].translate(_XOR[key[index]])


class Piece(NamedTuple):
    """Part of a message, as much as has come; ``data`` may be empty.

    Attributes:
        data: its bytes.
        begins: whether it is the message's first.
        ends: whether it is the message's last.
        is_text: whether the message is text.
    """

    data: bytearray
    begins: bool
    ends: bool
    is_text: bool


class WebSocket(asyncio.BufferedProtocol):
    """One side of a connection; make it the protocol of its transport with ``take``.

    Args:
        is_client: whether to mask, and the other side not to.
        unmask: as ``mask``, where there is a faster one.
        on_lost: called at the end of the connection.
    """

    def __init__(
        self,
        *,
        is_client: bool,
        unmask: Callable[[bytes, bytearray], object] = mask,
        on_lost: Callable[[Exception | None], object] = lambda _: None,
    ) -> None:
        self._is_client = is_client
        self._unmask = unmask
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._start = self._end = 0
        self._has_more: asyncio.Future[None] | None = None
        self._may_write: asyncio.Future[None] | None = None
        self._is_reading_paused = self._is_at_end = self._is_closing = False
        # Of the frame that is being read.
        self._left = 0
        self._key = b""
        self._is_last = self._is_text = self._begins = False
        self._opcode = _CONTINUED

    def take(self, transport: asyncio.Transport, tail: bytes = b"") -> None:
        """Be the transport's protocol from here on; ``tail`` came before it was."""
        self._transport = transport
        self._buffer[: len(tail)] = tail
        self._end = len(tail)
        transport.set_protocol(self)

    async def send(self, data: bytes, *, is_text: bool = False) -> None:
        """Send one message; waits while the other side does not read.

        Raises:
            ConnectionResetError: the connection is no more.
        """
        self._send_frame(_TEXT if is_text else _BINARY, data)
        await self._flushed()

    async def ping(self) -> None:
        """Send a ping: what it is good for is to notice a connection that is no more; as ``send``."""
        self._send_frame(_PING, b"")
        await self._flushed()

    async def receive(self) -> Piece | None:
        """Return the next piece, None when the other side has closed or is gone."""
        while True:
            if self._left:
                if (piece := self._take_piece()) is not None:
                    return piece
            elif self._read_head():
                if self._opcode >= _CLOSE:
                    data = await self._control_data()
                    if data is None or not self._answer_control(data):
                        return None
                elif not self._left:
                    return self._take_piece()
                continue
            if self._is_at_end:
                return None
            await self._more()

    async def close(self, timeout_s: float) -> None:
        """Say that nothing more comes, wait until the other side has said so too, and close."""
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                if not self._is_closing:
                    self._is_closing = True
                    self._send_frame(_CLOSE, _NORMAL)
                    await self._flushed()
                while await self.receive() is not None:
                    pass
        except (TimeoutError, ConnectionError):
            pass
        finally:
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # Frames

    def _send_frame(self, opcode: int, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the other side has closed the connection")
        size = len(data)
        bit = 0x80 if self._is_client else 0
        if size <= _CONTROL_BYTES_MAX:
            head = struct.pack("!BB", 0x80 | opcode, bit | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, bit | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, bit | 127, size)
        if self._is_client:
            key = os.urandom(4)
            masked = bytearray(data)
            mask(key, masked)
            head, data = head + key, bytes(masked)
        self._transport.writelines((head, data))

    def _read_head(self) -> bool:
        """Take the head of the next frame if all of it is there."""
        there = self._buffer[self._start : self._end]
        if len(there) < 2:
            return False
        first, second = there[0], there[1]
        is_masked, size = bool(second & 0x80), second & 0x7F
        place = 2 + {126: 2, 127: 8}.get(size, 0)
        if len(there) < place + 4 * is_masked:
            return False
        if size > _CONTROL_BYTES_MAX:
            size = int.from_bytes(there[2:place], "big")
        self._key = bytes(there[place : place + 4]) if is_masked else b""
        self._start += place + 4 * is_masked
        self._opcode, is_last = first & 0x0F, bool(first & 0x80)
        self._left = size
        is_known = self._opcode in (_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG)
        is_long = self._opcode >= _CLOSE and (size > _CONTROL_BYTES_MAX or not is_last)
        if first & 0x70 or not is_known or is_long or is_masked == self._is_client or size >= 1 << 63:
            self._refuse()
            return False
        if self._opcode < _CLOSE:
            self._is_last = is_last
        if self._opcode in (_TEXT, _BINARY):
            self._begins, self._is_text = True, self._opcode == _TEXT
        return True

    def _take_piece(self) -> Piece | None:
        """Take what there is of the frame's data; None when nothing is."""
        count = min(self._left, self._end - self._start)
        if self._left and not count:
            return None
        data = self._take(count)
        piece = Piece(data, self._begins, self._is_last and not self._left, self._is_text)
        self._begins = False
        return piece

    def _take(self, count: int) -> bytearray:
        data = bytearray(self._buffer[self._start : self._start + count])
        if self._key:
            self._unmask(self._key, data)
            turn = count % 4
            self._key = self._key[turn:] + self._key[:turn]
        self._start += count
        self._left -= count
        return data

    async def _control_data(self) -> bytes | None:
        while self._end - self._start < self._left:
            if self._is_at_end:
                return None
            await self._more()
        return bytes(self._take(self._left))

    def _answer_control(self, data: bytes) -> bool:
        """Answer a control frame; return whether anything may follow."""
        if self._opcode == _PING and not self._is_closing:
            self._send_frame(_PONG, data)
        if self._opcode != _CLOSE:
            return True
        self._is_at_end = True
        if not self._is_closing:
            self._is_closing = True
            self._send_frame(_CLOSE, data[:2] or _NORMAL)
        return False

    def _refuse(self) -> None:
        """End a connection on which something else is spoken."""
        self._is_at_end = True
        if not self._is_closing and self._transport is not None and not self._transport.is_closing():
            self._is_closing = True
            self._send_frame(_CLOSE, _BROKEN)
            self._transport.close()

    # Waiting

    async def _more(self) -> None:
        """Wait for more bytes, or the end."""
        self._make_room()
        self._has_more = asyncio.get_running_loop().create_future()
        try:
            await self._has_more
        finally:
            self._has_more = None

    def _make_room(self) -> None:
        """Have room for more, and let the other side send again."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == BUFFER_BYTES:
            left = bytes(self._buffer[self._start : self._end])
            self._buffer[: len(left)] = left
            self._start, self._end = 0, len(left)
        if self._is_reading_paused and self._end < BUFFER_BYTES and self._transport is not None:
            self._is_reading_paused = False
            self._transport.resume_reading()

    async def _flushed(self) -> None:
        while self._may_write is not None:
            await asyncio.shield(self._may_write)
        if self._transport is None:
            raise ConnectionResetError("the other side has closed the connection")

    # Of asyncio.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to put what comes."""
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take note of what has come."""
        self._end += nbytes
        if self._end == BUFFER_BYTES and self._transport is not None and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Nothing more comes."""
        self._is_at_end = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits that it is over."""
        self._transport = None
        self._is_at_end = True
        self._wake()
        self.resume_writing()
        self._on_lost(exc)

    def pause_writing(self) -> None:
        """Make senders wait."""
        if self._may_write is None:
            self._may_write = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let senders go on."""
        if self._may_write is not None:
            self._may_write.set_result(None)
            self._may_write = None

    def _wake(self) -> None:
        if self._has_more is not None and not self._has_more.done():
            self._has_more.set_result(None)
