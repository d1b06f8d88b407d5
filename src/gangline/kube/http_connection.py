"""One connection to a server: HTTP/1.1, one request at a time, whose answer is read whole or in pieces.

llhttp, the parser of Node.js, reads the framing (``httptools``); here is what a request waits for.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping

import httptools

head_bytes_max = 64 << 10
"""Longest head of an answer that is taken."""

buffered_bytes_max = 1 << 20
"""Bytes of a body that wait for their reader before the server is made to wait."""

gathered_after = 16
"""So many pieces in a row tell a busy stream from a few changes that somebody waits for."""

_SWITCHING = 101
_NO_BODY = (204, 304)
_LENGTHS = {b"content-length", b"transfer-encoding"}
_GZIP = 16 + zlib.MAX_WBITS  # the window that asks zlib for gzip's header


class BadAnswer(OSError):
    """What came is no HTTP, or ended too early."""


class ClosedUnanswered(BadAnswer):
    """The server closed the connection before the first byte of an answer."""


class Answer:
    """What a server answers to one request.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, connection: HttpConnection) -> None:
        self.status = 0
        self._headers: Mapping[bytes, bytes] = {}
        self._connection = connection
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._is_whole = False
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers; names are in lower case."""
        return {
            name.decode("latin-1"): value.decode("latin-1").strip() for name, value in self._headers.items()
        }

    async def read(self) -> bytes:
        """Return the body, or what is left of it; the connection is closed where its end does not come.

        Raises:
            OSError: it ended too early.
        """
        parts = []
        try:
            while not self._is_whole or self._pieces:
                parts.append(await self._next())
        except BaseException:
            self.close()
            raise
        return b"".join(parts)

    async def pieces(
        self, *, idle_timeout_s: float | None = None, until_s: float | None = None, gather_s: float = 0.0
    ) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes.

        Args:
            idle_timeout_s: longest wait for a piece.
            until_s: time of the event loop after which no piece is waited for.
            gather_s: once :data:`gathered_after` pieces have followed one another within this, what comes in
                such a time is one piece.

        Raises:
            TimeoutError: there was a longer wait.
            OSError: it ended too early.
        """
        loop, in_a_row, ended_s = asyncio.get_running_loop(), 0, 0.0
        while True:
            limits = [until_s] if until_s is not None else []
            if idle_timeout_s is not None:
                limits.append(loop.time() + idle_timeout_s)
            async with asyncio.timeout_at(min(limits, default=None)):
                piece = await self._next()
            if not piece:
                return
            in_a_row = in_a_row + 1 if loop.time() - ended_s < gather_s else 0
            yield piece
            if in_a_row > gathered_after and not self._is_whole:  # of a whole one the connection is another's
                self._connection.hold()
                try:
                    await asyncio.sleep(gather_s)
                finally:
                    self._connection.go_on()
            ended_s = loop.time()

    def close(self) -> None:
        """Close the connection unless the answer is here to its end."""
        if not self._is_whole:
            self._connection.close()

    def switch(self) -> tuple[asyncio.Transport, bytes]:
        """Return the connection of an answer 101, for another protocol, and what has come of that already."""
        self._is_whole = True
        return self._connection.release_transport()

    # What the connection tells.

    async def wait_head(self) -> None:
        """Wait for status and headers."""
        while not self.status:
            await self._wait()

    def begin(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Take the head; names are in lower case."""
        self.status, self._headers = status, headers
        self._wake()

    def feed(self, piece: bytes) -> bool:
        """Take a piece of the body; return whether enough of it waits for its reader."""
        self._pieces.append(piece)
        self._size_bytes += len(piece)
        self._wake()
        return self._size_bytes > buffered_bytes_max

    def end(self, error: OSError | None = None) -> None:
        """End the answer, early with an error; an answer ends once."""
        if not self._is_whole and self._error is None:
            self._is_whole, self._error = error is None, error
            self._wake()

    def is_over(self) -> bool:
        """Return whether nothing more comes."""
        return self._is_whole or self._error is not None

    async def _next(self) -> bytes:
        """Return all that has come since the last time, nothing at the end."""
        while not self._pieces and not self._is_whole:
            await self._wait()
        taken = b"".join(self._pieces)
        self._pieces.clear()
        self._size_bytes = 0
        if not self._is_whole:
            self._connection.go_on()
        return taken

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class HttpConnection(asyncio.Protocol):
    """A connection that is used again while both sides keep it open.

    Args:
        on_open: called when it is connected.
        on_free: called after each answer that lets another request follow.
        on_lost: called at its end.
    """

    def __init__(
        self,
        on_open: Callable[[HttpConnection], None],
        on_free: Callable[[HttpConnection], None],
        on_lost: Callable[[HttpConnection], None],
    ) -> None:
        self._on_open, self._on_free, self._on_lost = on_open, on_free, on_lost
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: Answer | None = None
        self._headers: dict[bytes, bytes] = {}
        # Of the parser, which calls it for each header: a method of ours would cost ten times as much.
        self.on_header = self._headers.__setitem__
        self._head_bytes = 0
        self._is_interim = self._ends_with_connection = self._keeps_open = self._is_paused = False
        self._upgrades, self._tail = False, b""
        self._unzip: zlib._Decompress | None = None
        self.used_s = 0.0

    @property
    def is_reusable(self) -> bool:
        """Whether it is open and no answer is under way."""
        return self._answer is None and self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, *, upgrades: bool = False) -> Answer:
        """Send a request and return its answer once the head is here; a cancelled one closes the connection.

        With ``upgrades`` the request asks for another protocol, and 101 is an answer.

        Raises:
            ClosedUnanswered: not a byte came.
            OSError: what came is no answer.
        """
        answer = self.begin(request, upgrades=upgrades)
        try:
            await answer.wait_head()
        except BaseException:
            self.close()
            raise
        return answer

    def begin(self, request: bytes, *, upgrades: bool = False) -> Answer:
        """Send a request and return its answer, of which nothing is here yet.

        Raises:
            ClosedUnanswered: nothing was sent.
        """
        if self._transport is None:
            raise ClosedUnanswered("the server closed the connection")
        self._parser = httptools.HttpResponseParser(self)
        self._headers.clear()
        self._head_bytes, self._unzip = 0, None
        self._is_interim = self._ends_with_connection = self._keeps_open = False
        self._upgrades = upgrades
        answer = self._answer = Answer(self)
        self._transport.write(request)
        return answer

    def close(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()

    async def hand_over(self, to: HttpConnection, tls: ssl.SSLContext, server_name: str) -> None:
        """Speak TLS on it from here on, as another connection; this one is at its end."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(self._transport, to, tls, server_hostname=server_name)
        self._transport = self._answer = self._parser = None
        self._on_lost(self)
        if transport is None:
            raise BadAnswer("the server closed the connection")
        to.connection_made(transport)

    def release_transport(self) -> tuple[asyncio.Transport, bytes]:
        """Give the connection away, with what has come after the head; this object is at its end."""
        transport, self._transport = self._transport, None
        self._answer = self._parser = None
        self._on_lost(self)
        if transport is None:
            raise BadAnswer("the server closed the connection")
        return transport, self._tail

    def hold(self) -> None:
        """Let what the server sends wait on the way."""
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Let the server send again."""
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # Of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the answer; bytes that were not asked for end the connection."""
        answer = self._answer
        if answer is None or self._parser is None or answer.is_over():  # nothing was asked, or it is answered
            self.close()
            return
        if answer.status == _SWITCHING:
            self._tail += data
            return
        self._head_bytes += 0 if answer.status else len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if answer.status == _SWITCHING:
                self._tail = data[upgrade.args[0] :]
                return
            self._refuse("the answer is no HTTP: it goes on in a protocol that was not asked for")
        except httptools.HttpParserError as error:
            self._refuse(f"the answer is no HTTP: {error}")
        if not answer.status and self._head_bytes > head_bytes_max:
            self._refuse(f"the answer is no HTTP: its head has more than {head_bytes_max} bytes")
        if answer.is_over():
            self._release()

    def connection_lost(self, error: Exception | None) -> None:
        """End the answer under way: in order where its end is the connection's, else early."""
        self._transport = None
        self._on_lost(self)
        if (answer := self._answer) is None:
            return
        if isinstance(error, OSError) and self._head_bytes:
            answer.end(error)
        elif self._ends_with_connection and not error:
            self.on_message_complete()
        else:
            kind = BadAnswer if self._head_bytes else ClosedUnanswered
            answer.end(kind(str(error or "the server closed the connection")))
        self._release()

    def _release(self) -> None:
        """Be free for the next request, or close."""
        self._answer = self._parser = None
        if not self._keeps_open:
            self.close()
        elif self._transport is not None:
            self.go_on()
            self.used_s = asyncio.get_running_loop().time()
            self._on_free(self)

    # Of the parser, in the order of a message.

    def on_message_begin(self) -> None:
        """Take nothing that was not asked for."""
        if self._answer is not None and self._answer.is_over():
            self._keeps_open = False

    def on_headers_complete(self) -> None:
        """Take the head, without trailers, which come later; an interim answer's (1xx) counts as none."""
        assert self._parser is not None
        if self._answer is None or self._answer.is_over():
            return
        status = self._parser.get_status_code()
        headers = {name.lower(): value for name, value in self._headers.items()}
        self._is_interim = 100 <= status < 200 and not (status == _SWITCHING and self._upgrades)
        self._headers.clear()
        if self._is_interim:
            return
        if status == _SWITCHING:
            self._answer.begin(status, headers)
            return
        self._keeps_open = self._parser.should_keep_alive()
        self._ends_with_connection = not _LENGTHS & headers.keys()
        encoding = headers.get(b"content-encoding", b"identity").strip()
        if encoding == b"gzip":
            self._unzip = zlib.decompressobj(_GZIP)
        elif encoding != b"identity":
            text = encoding[:40].decode("latin-1")
            self._refuse(f"the answer has the unknown encoding `{text}`")
        self._answer.begin(status, headers)
        if status in _NO_BODY:
            self._keeps_open = b"close" not in headers.get(b"connection", b"").lower()
            self._answer.end()

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body."""
        if self._answer is None or self._answer.is_over():
            return
        if self._unzip is not None:
            try:
                piece = self._unzip.decompress(piece)
            except zlib.error as error:
                return self._refuse(f"the answer cannot be decompressed: {error}")
        if piece and self._answer.feed(piece):
            self.hold()

    def on_message_complete(self) -> None:
        """End the answer."""
        if self._answer is None or self._is_interim or self._answer.status == _SWITCHING:
            return
        if self._unzip is not None and not self._unzip.eof:
            self._refuse("the answer's gzip ends too early")
        self._answer.end()

    def _refuse(self, why: str) -> None:
        self._keeps_open = False
        if self._answer is not None:
            self._answer.end(BadAnswer(why))
