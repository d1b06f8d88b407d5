"""One session with a host: a Python program sent over the remote shell, and its events."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gangline.launch.remote_host import RemoteShell

WORDS_MAX = 4000
_END_GRACE_S = 5.0


@dataclass(slots=True)
class HostSession:
    """A program on a host.

    Attributes:
        host: as the user wrote it.
        process: the remote shell's process, or the program itself on this machine.
        words: what the shell wrote on its standard error; the last 4000 bytes.
    """

    host: str
    process: asyncio.subprocess.Process
    words: bytearray = field(default_factory=bytearray)
    _reader: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, host: str, shell: RemoteShell, program: str, *, is_local: bool) -> HostSession:
        """Start the program there.

        Raises:
            OSError: the remote shell's program cannot be run.
        """
        source = program.encode()
        line = shell.python_line("" if is_local else host, len(source), sys.executable)
        process = await asyncio.create_subprocess_exec(
            *line,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the launcher alone, which ends the ranks in order
        )
        session = cls(host, process)
        session._reader = asyncio.create_task(session._read_words())
        session._write(source)
        return session

    def send(self, command: Any) -> None:
        """Send one command as JSON; to a session that has ended it says nothing."""
        self._write(json.dumps(command).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self.process.stdin.write(data)

    async def _read_words(self) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(65536):
            self.words += data
            del self.words[:-WORDS_MAX]

    @property
    def is_over(self) -> bool:
        """Whether the remote shell has ended."""
        return self.process.returncode is not None

    def events(self) -> AsyncIterator[tuple[str, int, bytes]]:
        """Yield (event, rank, payload) until the program ends."""
        assert self.process.stdout is not None
        return read_events(self.process.stdout)

    async def close(self) -> int:
        """End standard input, so that the program ends; return the shell's exit code, kill it if need be."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(_END_GRACE_S):
                code = await self.process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
            code = await self.process.wait()
        if self._reader is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._reader
        return code

    def kill(self) -> None:
        """End the shell at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)

    def last_words(self) -> str:
        """Return the last line of the shell's own errors."""
        lines = self.words.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


async def read_events(stream: asyncio.StreamReader) -> AsyncIterator[tuple[str, int, bytes]]:
    """Yield (event, rank, payload) of a supervisor until its stream ends.

    What a login shell prints before the first event is passed over.
    """
    while True:
        try:
            head = (await stream.readuntil(b"\n")).split()
            if len(head) != 3 or not (head[1] + head[2]).isdigit():
                continue
            payload = await stream.readexactly(int(head[2]))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            return
        yield head[0].decode("ascii", "replace"), int(head[1]), payload
