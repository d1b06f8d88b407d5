"""Hosts that come by themselves: each runs ``gangline launch --rendezvous``, and the one named there leads.

For pods and hosts that no remote shell reaches, such as the workers of a PyTorchJob. Who joins starts its own
command by its own supervisor: all that it takes from the leader is how many ranks to start, which to end, and
the board. As with torchrun's rendezvous, whoever reaches the port may join: that is for the network to bound.

Of two hosts with one name the first stays as long as it answers, and the second is refused. One that answers
no more is the same host before it came back: its connection is closed, and its ranks are lost.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gangline.errors import ClusterError, JobFailedError, UserError
from gangline.launch.elastic.membership import JOIN_LIMIT_S, worker_variables
from gangline.launch.host_session import HostSession, read_events
from gangline.launch.rank_start import RANK_SUPERVISOR
from gangline.launch.remote_host import RemoteShell, is_this_host

HELLO_LIMIT_S = 10.0
ANSWER_LIMIT_S = 5.0
"""A host that is asked whether it is alive says so within this."""
LEAVING_LIMIT_S = 25.0
"""For ranks that leave at their next commit: within the 30 s that a pod is given by default."""
LINE_BYTES_MAX = 1 << 22
_RETRY_S = 0.2
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
"""A host whose network is gone is noticed after half a minute, also where something was on its way to it."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where hosts meet.

    Attributes:
        host: of the leader.
        port: at which it listens.
        job: only those of the same name meet.
    """

    host: str
    port: int
    job: str = ""

    @classmethod
    def parse(cls, text: str, job: str) -> Rendezvous:
        """Return what ``HOST:PORT`` says.

        Raises:
            UserError: it is malformed.
        """
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UserError(f"--rendezvous `{text}` is not of the form `HOST:PORT`", hint="node-1:29400")
        return cls(host.strip("[]"), int(port), job)

    def listen(self) -> socket.socket | None:
        """Return the leader's socket if this host is the one that leads, None where another one does."""
        if not is_this_host(self.host):
            return None
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", self.port))
            listener.listen()  # of two that have bound it one alone listens
        except OSError:  # pods that share an address: the first of them leads
            listener.close()
            return None
        return listener


@dataclass(slots=True)
class JoinedHost:
    """A host that has joined, as its leader sees it; used as `HostSession` is.

    Attributes:
        host: its name, as it says.
        address: from which it came.
        slots: ranks that it takes.
    """

    host: str
    address: str
    slots: int
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _heard: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def is_over(self) -> bool:
        """Whether it is gone."""
        return self._writer.is_closing() or self._reader.at_eof()

    def send(self, command: dict[str, Any]) -> None:
        """Send one command; what a rank runs its host knows itself."""
        if "start" in command:
            command = {"start": [one["rank"] for one in command["start"]]}
        if not self.is_over:
            self._writer.write(json.dumps(command).encode() + b"\n")

    async def events(self) -> AsyncIterator[tuple[str, int, bytes]]:
        """Yield (event, rank, payload) until it is gone."""
        async for event in read_events(self._reader):
            self._heard.set()
            yield event
        self._heard.set()

    async def is_alive(self) -> bool:
        """Ask it something, and return whether it answers; somebody reads its `events` meanwhile."""
        self._heard.clear()
        self.send({"ports": []})  # it answers with its addresses
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await self._heard.wait()
        return self._heard.is_set() and not self.is_over

    async def close(self) -> int:
        """Let it go, once all has been sent."""
        with suppress(ConnectionError):
            await self._writer.drain()
        self._writer.close()
        return 0

    def kill(self) -> None:
        """Let it go at once, whatever was still to be sent."""
        self._writer.transport.abort()

    def last_words(self) -> str:
        """Return nothing: it shows its own errors."""
        return ""


async def serve_joining(
    listener: socket.socket, job: str, join: Callable[[JoinedHost], Awaitable[None]]
) -> asyncio.Server:
    """Give every host that comes to ``join``, and tell it the UserError that this raises."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HELLO_LIMIT_S):
                hello = json.loads(await reader.readline())
            address = str(writer.get_extra_info("peername")[0])
            host = JoinedHost(str(hello["host"]), address, int(hello["slots"]), reader, writer)
            its_job = str(hello["job"])
        except (TimeoutError, ValueError, KeyError, TypeError, ConnectionError):
            writer.close()  # whoever it is, it is no host of ours
            return
        _keep_alive(writer)
        try:
            if its_job != job:
                raise UserError(
                    f"a host of job `{its_job}` came to the leader of another one",
                    hint="give all hosts of a job the same PET_RDZV_ID, and each job a port of its own",
                )
            await join(host)
        except UserError as error:
            writer.write(json.dumps({"refused": error.message, "hint": error.hint}).encode() + b"\n")
            await host.close()

    return await asyncio.start_server(take, sock=listener, limit=LINE_BYTES_MAX)


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# The host that joins ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Joining:
    """This host, as one that joins.

    Args:
        rendezvous: where its leader is.
        slots: ranks that it takes.
        command: of each rank.
        cwd: where they start.
        say: is told what happens.
    """

    rendezvous: Rendezvous
    slots: int
    command: Sequence[str]
    cwd: str
    say: Callable[[str], None]
    _code: int | None = field(default=None, init=False)
    _refusal: UserError | None = field(default=None, init=False)
    _is_taken: bool = field(default=False, init=False)
    _is_asked: bool = field(default=False, init=False)
    _running: set[int] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Return when the leader says that all is done.

        Raises:
            ClusterError: there is no leader.
            UserError: it does not take this host.
            JobFailedError: the training failed, its leader is gone, or this host was asked to leave.
        """
        reader, writer = await self._connect()
        _keep_alive(writer)
        program = RANK_SUPERVISOR.read_text(encoding="utf-8")
        supervisor = await HostSession.open("", RemoteShell(), program, is_local=True)
        loop, leaving = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, leaving.set)
        tasks = [
            asyncio.create_task(self._obey(reader, supervisor)),
            asyncio.create_task(self._tell(supervisor, writer)),
            asyncio.create_task(self._leave(leaving, writer)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await supervisor.close()
            writer.close()
        if self._refusal is not None:
            raise self._refusal
        if self._is_asked:
            raise JobFailedError("asked to leave: ranks of this host have ended", exit_code=128 + 15)
        if self._code is None:
            raise JobFailedError(f"the leader at {self._where} is gone: ranks of this host were ended")
        if self._code:
            raise JobFailedError("the training failed; its leader says why", exit_code=self._code)

    @property
    def _where(self) -> str:
        return f"{self.rendezvous.host}:{self.rendezvous.port}"

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = os.environ.get("HOSTNAME") or socket.gethostname()
        hello = {"host": name, "slots": self.slots, "job": self.rendezvous.job}
        until = time.monotonic() + JOIN_LIMIT_S
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    self.rendezvous.host, self.rendezvous.port, limit=LINE_BYTES_MAX
                )
            except OSError as error:
                if time.monotonic() > until:
                    raise ClusterError(
                        f"nobody leads at {self._where}: {error}",
                        hint="`gangline launch` on that host leads; see whether it runs",
                    ) from error
                await asyncio.sleep(_RETRY_S)
            else:
                writer.write(json.dumps(hello).encode() + b"\n")
                return reader, writer

    async def _obey(self, reader: asyncio.StreamReader, supervisor: HostSession) -> None:
        """Pass on what the leader says, until it ends all or is gone."""
        with suppress(ConnectionError, ValueError):
            while line := await reader.readline():
                command = json.loads(line)
                if "refused" in command:
                    self._refusal = UserError(command["refused"], hint=command["hint"])
                    return
                if not self._is_taken:
                    self._is_taken = True
                    self.say(f"joined {self._where}, which shows what ranks write")
                if "start" in command:
                    command = {"start": [self._rank(number) for number in command["start"]], "cwd": self.cwd}
                if "end" in command:
                    self._code = int(command["end"])
                supervisor.send(command)

    def _rank(self, number: int) -> dict[str, Any]:
        return {"rank": number, "argv": list(self.command), "env": worker_variables(number)}

    async def _tell(self, supervisor: HostSession, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            async for event, rank, payload in supervisor.events():
                writer.write(b"%s %d %d\n" % (event.encode(), rank, len(payload)) + payload)
                await writer.drain()
                if event == "started":
                    self._running.add(rank)
                elif event == "exit":
                    self._running.discard(rank)
                    if self._is_asked and not self._running:
                        return

    async def _leave(self, leaving: asyncio.Event, writer: asyncio.StreamWriter) -> None:
        """Once asked, have the ranks leave at their next commit; return when they had the time for it."""
        await leaving.wait()
        self._is_asked = True
        writer.write(b"leaving 0 0\n")
        if self._running:
            await asyncio.sleep(LEAVING_LIMIT_S)
