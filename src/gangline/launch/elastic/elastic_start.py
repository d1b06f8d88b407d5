"""Starts workers on hosts that come and go, and tells them their places, one generation after another.

Every host's supervisor shows its workers a board, a small file, which says who trains with whom. Workers say
by a record in their output that they are free. So nobody opens a port but rank 0, for its generation.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gangline.errors import EXIT_RESUME, JobFailedError, UserError
from gangline.launch.elastic.discovery import HostDiscovery
from gangline.launch.elastic.joined_hosts import JoinedHost, Joining, Rendezvous, serve_joining
from gangline.launch.elastic.membership import (
    COOL_DOWN_S,
    JOIN_LIMIT_S,
    Membership,
    TooFewRanksError,
    Worker,
    worker_variables,
)
from gangline.launch.host_session import HostSession
from gangline.launch.hosts import Host
from gangline.launch.mpirun import master_port
from gangline.launch.plain_hosts import show_output
from gangline.launch.rank_failure import take_record
from gangline.launch.rank_output import RankOutput, plain_prefix
from gangline.launch.rank_places import forwarded_variables
from gangline.launch.rank_start import RANK_SUPERVISOR, SAVING_LIMIT_S, StartOptions
from gangline.workloads.outcome import cause_of_code, is_signal

TICK_S = 0.1
RANKS_MAX = 4096
RANKS_SHOWN = 1000
"""For so many there is room before lines of output, where no most is given."""
FREE_KIND = "elastic-free"
"""Of the record by which a worker says that it is inside of no generation."""
EXIT_UNREACHABLE = 255
"""Of a worker whose host is gone, as ssh says it."""


@dataclass(frozen=True, slots=True)
class ElasticOptions:
    """How the number of ranks may change.

    Attributes:
        ranks_min: with fewer nobody trains.
        ranks_max: more are never started, None for as many as the hosts have slots.
        restarts_max: failures of ranks that are survived; a host that is lost or taken away is none.
        discovery: words of a program that prints hosts, none for those that were given.
        discovered_slots: of hosts that it prints without.
        cool_down_s: a host that failed gets no worker for so long.
        join_limit_s: so long enough ranks are waited for.
        rendezvous: where hosts come by themselves, None where none do.
    """

    ranks_min: int
    ranks_max: int | None
    restarts_max: int
    discovery: tuple[str, ...] = ()
    discovered_slots: int = 1
    cool_down_s: float = COOL_DOWN_S
    join_limit_s: float = JOIN_LIMIT_S
    rendezvous: Rendezvous | None = None


def run_elastic(
    hosts: Sequence[Host],
    options: StartOptions,
    elastic: ElasticOptions,
    log_folder: Path | None,
    say: Callable[[str], None],
) -> None:
    """Start workers and return when all of the last generation have ended well; see `ElasticStart`.

    Where hosts come by themselves and another one leads, this one joins it, with the slots of the first of
    ``hosts``.
    """
    listener = elastic.rendezvous.listen() if elastic.rendezvous else None
    if elastic.rendezvous and listener is None:
        asyncio.run(Joining(elastic.rendezvous, hosts[0].slots, options.command, options.cwd, say).run())
        return
    output = ElasticOutput(show_output, plain_prefix, log_folder, elastic.ranks_max or RANKS_SHOWN)
    asyncio.run(ElasticStart(hosts, options, elastic, output, say).run(listener))


class ElasticOutput(RankOutput):
    """Output of workers, out of which their words to the launcher are taken."""

    on_free: Callable[[int], None] = staticmethod(lambda number: None)

    def _line(self, rank: int, stream: str, line: bytes) -> None:
        before, record = take_record(line.decode(errors="surrogateescape"))
        if record is None or record["kind"] != FREE_KIND:
            super()._line(rank, stream, line)
            return
        if before:
            super()._line(rank, stream, before.encode(errors="surrogateescape") + b"\n")
        self.on_free(rank)


class ElasticStart:
    """One elastic run.

    Args:
        hosts: with slots; none where a program names them.
        options: how workers are started.
        elastic: how their number may change.
        output: of all workers, by their numbers.
        say: is told of generations.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        options: StartOptions,
        elastic: ElasticOptions,
        output: ElasticOutput,
        say: Callable[[str], None],
    ) -> None:
        self._options, self._elastic, self._output, self._say = options, elastic, output, say
        self._members = Membership(
            hosts,
            elastic.ranks_min,
            elastic.ranks_max or RANKS_MAX,
            elastic.restarts_max,
            time.monotonic(),
            cool_down_s=elastic.cool_down_s,
            join_limit_s=elastic.join_limit_s,
        )
        self._own_hosts = {host.name for host in hosts}
        self._sessions: dict[str, HostSession | JoinedHost] = {}
        self._addresses: dict[str, dict[str, str]] = {}
        self._followers: set[asyncio.Task[None]] = set()
        self._codes: dict[int, int] = {}
        self._shown = self._members.generation
        self._board = json.dumps({"generation": 0, "is_changing": True, "has_lost": False, "members": []})
        self._program = f"{os.getpid()}-{time.time_ns()}"
        self._signal = 0
        self._failure: TooFewRanksError | None = None
        output.on_free = self._members.is_free

    async def run(self, listener: socket.socket | None = None) -> None:
        """Return when all workers of the last generation have ended well.

        Args:
            listener: at which hosts come by themselves.

        Raises:
            JobFailedError: the training could not go on; the message names the rank that was lost last.
            DiscoveryError: the program that names hosts failed at its first call.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt, number)
        server = None
        if listener is not None and self._elastic.rendezvous is not None:
            server = await serve_joining(listener, self._elastic.rendezvous.job, self._join)
        began = time.monotonic()
        looking = asyncio.create_task(self._look_for_hosts())
        try:
            while not self._is_over():
                await asyncio.sleep(TICK_S)
                now = time.monotonic()
                if looking.done():
                    looking.result()
                if self._signal:
                    continue
                await self._start(self._members.starts(now))
                for worker in self._members.late(now):
                    self._send(worker.host, {"kill": [worker.number]})
                self._go_on(now, is_start_over=now - began > self._options.start_timeout_s)
        except TooFewRanksError as error:
            self._failure = error
        finally:
            ended = self._error()
            looking.cancel()
            if server is not None:
                server.close()
            for session in self._sessions.values():
                session.send({"stop": True, "end": ended.exit_code if ended else 0})
            await asyncio.gather(*(session.close() for session in self._sessions.values()))
            await asyncio.gather(looking, *self._followers, return_exceptions=True)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
            self._output.close()
        if ended is not None:
            raise ended

    async def _look_for_hosts(self) -> None:
        if program := self._elastic.discovery:
            discovery = HostDiscovery(program, self._elastic.discovered_slots, self._say)
            await discovery.run(self._members.change_hosts)

    def _is_over(self) -> bool:
        if self._failure is not None:
            return True
        if self._signal:
            return not self._members.alive()
        return self._members.is_finished and not self._members.alive("inside")

    def _interrupt(self, number: int) -> None:
        """Ask all to end: with time to save for SIGTERM, with little when asked twice or by a terminal."""
        patience = {"grace_s": SAVING_LIMIT_S} if number == signal.SIGTERM and not self._signal else {}
        self._signal = self._signal or number
        for session in self._sessions.values():
            session.send({"stop": True, **patience})

    def _go_on(self, now: float, *, is_start_over: bool) -> None:
        """Show the board where it has changed."""
        self._members.decide(now, is_start_over=is_start_over)
        before, after = self._shown, self._members.generation
        if after == before:
            return
        self._shown = after
        if after.number != before.number:
            hosts = ", ".join(dict.fromkeys(member.host for member in after.members))
            count = "1 rank" if len(after.members) == 1 else f"{len(after.members)} ranks"
            self._say(f"generation {after.number}: {count} on {hosts}")
        board = {name: getattr(after, name) for name in ("is_changing", "has_lost")}
        board |= {"generation": after.number, "members": []}
        if after.members:
            first = after.members[0].host
            board["members"] = [asdict(member) for member in after.members]
            board["master"] = self._address(first, [member.host for member in after.members])
            board["port"] = master_port(self._program, after.number)
        self._board = json.dumps(board)
        for session in self._sessions.values():
            session.send({"board": self._board})

    def _address(self, first: str, hosts: Sequence[str]) -> str:
        """Return where the members of a generation find its rank 0."""
        if isinstance(joined := self._sessions.get(first), JoinedHost):
            return joined.address
        known = self._addresses.get(first, {})
        if self._options.interfaces and (found := known.get(self._options.interfaces[0])):
            return found
        if all(self._options.is_local(host) for host in hosts):
            return "127.0.0.1"
        if self._options.is_local(first) or not _is_known(first):
            return next((one for one in known.values() if not one.startswith("127.")), first)
        return first

    async def _start(self, workers: Sequence[Worker]) -> None:
        for host in dict.fromkeys(worker.host for worker in workers):
            # A host that came by itself may have gone while another one was opened.
            ranks = [
                {"rank": worker.number, "argv": list(self._options.command), "env": self._environment(worker)}
                for worker in workers
                if worker.host == host and worker.state != "ended"
            ]
            if not ranks:
                continue
            session = self._sessions.get(host) or await self._open(host)
            session.send({"board": self._board})
            session.send({"start": ranks, "cwd": self._options.cwd})

    async def _open(self, host: str) -> HostSession:
        program = RANK_SUPERVISOR.read_text(encoding="utf-8")
        try:
            session = await HostSession.open(
                host, self._options.shell, program, is_local=self._options.is_local(host)
            )
        except OSError as error:
            raise UserError(
                f"cannot run the remote shell `{self._options.shell.program}`: {error}"
            ) from error
        self._take(session)
        return session

    def _take(self, session: HostSession | JoinedHost) -> None:
        self._sessions[session.host] = session
        session.send({"ports": [], "stay": True})
        self._followers.add(asyncio.create_task(self._follow(session)))

    async def _join(self, host: JoinedHost) -> None:
        """Take a host that has come by itself.

        Raises:
            UserError: one of its name is there, and answers.
        """
        name = host.host
        if name in self._own_hosts:
            raise _name_taken(name, "the leader's own host")
        while isinstance(before := self._sessions.get(name), JoinedHost):
            if await before.is_alive():
                raise _name_taken(name, f"a host at {before.address}")
            self._host_ended(before, "it answers no more, and has come anew")
            before.kill()
        self._take(host)
        others = [one for one in self._members.hosts if one.name != name]
        self._members.change_hosts([*others, Host(name, host.slots)])

    def _leave(self, name: str) -> None:
        self._members.change_hosts([one for one in self._members.hosts if one.name != name])

    def _environment(self, worker: Worker) -> dict[str, str]:
        is_local = self._options.is_local(worker.host)
        inherited = dict(self._options.environment)
        own = inherited if is_local else forwarded_variables(inherited)
        return own | worker_variables(worker.number)

    def _send(self, host: str, command: dict[str, Any]) -> None:
        self._sessions[host].send(command)

    async def _follow(self, session: HostSession | JoinedHost) -> None:
        """Take a host's events until its session ends; workers that it had then are lost."""
        words = ""
        try:
            async for event, number, payload in session.events():
                if self._sessions.get(session.host) is session:
                    self._take_event(session.host, event, number, payload)
        except (ValueError, KeyError, TypeError) as error:
            words = f"it said what no host says ({error!r})"
            session.kill()
        self._host_ended(session, words or session.last_words() or "its connection ended")
        await session.close()

    def _take_event(self, host: str, event: str, number: int, payload: bytes) -> None:
        """Take what a host says of itself and of its own workers; of others it has nothing to say."""
        if event == "hello":
            self._addresses[host] = json.loads(payload)["addresses"]
            return
        if event == "leaving":
            self._leave(host)
            return
        worker = self._members.workers.get(number)
        if worker is None or worker.host != host or worker.state == "ended":
            return
        if event in ("out", "err"):
            self._output.feed(number, "stdout" if event == "out" else "stderr", payload)
        elif event == "failed":
            self._say(f"worker {number} on {host} could not be started: {payload.decode()}")
            self._ended(number, 127)
        elif event == "exit":
            self._output.end_rank(number)
            self._ended(number, int(payload))

    def _host_ended(self, session: HostSession | JoinedHost, words: str) -> None:
        if self._sessions.get(session.host) is not session:
            return
        del self._sessions[session.host]
        if lost := [worker for worker in self._members.alive() if worker.host == session.host]:
            self._host_lost(session.host, lost, words)
        if isinstance(session, JoinedHost):
            self._leave(session.host)

    def _host_lost(self, host: str, lost: Sequence[Worker], words: str) -> None:
        for worker in lost:
            self._output.end_rank(worker.number)
            self._codes[worker.number] = EXIT_UNREACHABLE
        if self._signal or self._failure is not None:
            for worker in lost:
                worker.state = "ended"
            return
        try:
            self._members.host_ended(host, EXIT_UNREACHABLE, time.monotonic())
        except TooFewRanksError as error:
            self._say(f"host {host} was lost: {words}")
            self._failure = error
            return
        self._lost(f"host {host} was lost: {words}")

    def _ended(self, number: int, code: int) -> None:
        self._codes[number] = code
        if self._signal or self._failure is not None:
            self._members.workers[number].state = "ended"
            return
        # A rank that saved and asks to be started again has ended as well as the others have.
        is_good = code in (0, EXIT_RESUME)
        try:
            self._members.ended(number, 0 if is_good else code, time.monotonic())
        except TooFewRanksError as error:
            self._failure = error
            return
        if not is_good:
            self._lost(f"worker {number} on {self._members.workers[number].host} {_ending(code)}")

    def _lost(self, what: str) -> None:
        self._say(f"{what}; {len(self._members.alive('inside', 'free'))} others go on")
        with suppress(TooFewRanksError):
            self._go_on(time.monotonic(), is_start_over=False)

    def _error(self) -> JobFailedError | None:
        """Return why the training has not ended well."""
        if self._signal and set(self._codes.values()) != {EXIT_RESUME}:
            return JobFailedError(
                f"ended by signal {self._signal}: all ranks were ended", exit_code=128 + self._signal
            )
        if (failure := self._failure) is not None:
            who = failure.worker
            if who is None:
                return JobFailedError(str(failure))
            tail = "\n".join(f"  {line}" for line in self._output.tail(who.number)[-5:])
            lines = f"\n\nits last lines:\n{tail}" if tail else ""
            return JobFailedError(
                f"worker {who.number} on `{who.host}` {_ending(failure.code)}: {failure}{lines}",
                exit_code=failure.code,
            )
        if EXIT_RESUME in self._codes.values():
            return JobFailedError(
                "all ranks saved and ended", exit_code=EXIT_RESUME, hint="start it again: it goes on there"
            )
        return None


def _name_taken(name: str, by: str) -> UserError:
    return UserError(
        f"a host named `{name}` came to join, and {by} has that name",
        hint="end that one, or start this one with another HOSTNAME",
    )


def _is_known(name: str) -> bool:
    """Return whether a name leads to an address: a remote shell may know names of its own."""
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def _ending(code: int) -> str:
    return cause_of_code(code).ending if is_signal(code) else f"exited with code {code}"
