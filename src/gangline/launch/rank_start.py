"""Start ranks on hosts without any MPI, follow them, and end all when one fails.

One remote shell for each host runs ``rank_supervisor``; ranks on this machine need none. When the
launcher ends in whatever way, the supervisors lose their standard input and end their ranks.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gangline.errors import EXIT_RESUME, ClusterError, JobFailedError, UserError
from gangline.launch.host_session import HostSession
from gangline.launch.hosts import RankHost
from gangline.launch.mpirun import MASTER_PORT_COUNT, MASTER_PORT_FIRST, master_port
from gangline.launch.rank_output import RankOutput
from gangline.launch.rank_places import forwarded_variables, master_address, place_variables
from gangline.launch.rank_watch import name_of_program, watch_until_cancelled, watched
from gangline.launch.remote_host import EXIT_NO_PYTHON, RemoteShell, is_this_host
from gangline.workloads.outcome import cause_of_code, is_signal

START_TIMEOUT_S = 30.0
EXIT_INTERRUPTED = 130
SAVING_LIMIT_S = 30.0
"""For ranks that save when they are asked to stop, as long as pods have by default."""
_PORTS_TRIED = 20
RANK_SUPERVISOR = Path(__file__).with_name("rank_supervisor.py")


class StartError(ClusterError):
    """Ranks could not all be started in time."""

    code = "start"


@dataclass(slots=True)
class RankState:
    """What is known of a rank, in words such as ``waits for its host`` and ``exited with code 1``."""

    place: RankHost
    state: str = "waits for its host"
    since: float = field(default_factory=time.monotonic)
    exit_code: int | None = None
    has_answered: bool = False
    has_started: bool = False

    def to(self, state: str, *, started: bool = False) -> None:
        """Change the words; whoever says something of a rank is its host, which has answered."""
        self.state, self.since = state, time.monotonic()
        self.has_answered = True
        self.has_started |= started


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How ranks are started.

    Attributes:
        shell: for hosts other than this machine.
        command: program and arguments.
        environment: the launcher's.
        cwd: folder in which ranks start; on other hosts it must exist there.
        interfaces: network interfaces, empty for any.
        start_timeout_s: until all ranks must have been started.
        is_local: tells which names are this machine's.
    """

    shell: RemoteShell
    command: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    interfaces: Sequence[str] = ()
    start_timeout_s: float = START_TIMEOUT_S
    is_local: Callable[[str], bool] = is_this_host


def state_table(states: Sequence[RankState], now: float) -> str:
    """Return a table with the state of every rank and for how long it lasts; alike ranks share a line."""
    rows: list[tuple[str, str, str, str]] = []
    index = 0
    while index < len(states):
        first = states[index]
        last = index
        while last + 1 < len(states) and (states[last + 1].place.host, states[last + 1].state) == (
            first.place.host,
            first.state,
        ):
            last += 1
        ranks = str(index) if last == index else f"{index}-{last}"
        rows.append((ranks, first.place.host, first.state, f"{now - first.since:.0f} s"))
        index = last + 1
    widths = [max(len(row[column]) for row in [("RANK", "HOST", "STATE", ""), *rows]) for column in range(3)]
    lines = [("RANK", "HOST", "STATE", "FOR"), *rows]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in lines
    )


class RankStart:
    """One run of ranks on hosts."""

    def __init__(
        self,
        places: Sequence[RankHost],
        options: StartOptions,
        output: RankOutput,
        *,
        tell_place: bool = True,
    ) -> None:
        """Take what is to be run; without ``tell_place`` the program gets no variables about ranks."""
        self._options, self._output, self._tell_place = options, output, tell_place
        self.states = [RankState(place) for place in places]
        self._hosts: dict[str, list[RankHost]] = {}
        for place in places:
            self._hosts.setdefault(place.host, []).append(place)
        self._sessions: dict[str, HostSession] = {}
        self._hellos: dict[str, asyncio.Future[dict[str, object]]] = {}
        self._failure: RankState | None = None
        self._lost = self._lost_words = ""
        self._stopping = asyncio.Event()
        self._all_started = asyncio.Event()
        self._signal = 0
        self._program = name_of_program()

    @property
    def was_interrupted(self) -> bool:
        """Whether a signal to this process ended the ranks."""
        return self._signal != 0

    def stop(self) -> None:
        """End all ranks."""
        self._stopping.set()

    async def run(self) -> None:
        """Return when all ranks have ended well.

        Raises:
            JobFailedError: a rank failed; the message names it and its host.
            StartError: not all ranks could be started in time.
            UserError: the program cannot be started.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt, number)
        followers: list[asyncio.Task[None]] = []
        watch = asyncio.create_task(self._watch_start())
        stopper = asyncio.create_task(self._stop_when_told())
        is_seen = any(self._options.is_local(host) for host in self._hosts)
        rank_watch = asyncio.create_task(watch_until_cancelled(self._program if is_seen else ""))
        try:
            await self._open_all(followers)
            if not self._stopping.is_set():
                await self._start_all()
            await asyncio.gather(*followers)
        finally:
            watch.cancel()
            stopper.cancel()
            rank_watch.cancel()
            await asyncio.gather(rank_watch, return_exceptions=True)
            await asyncio.gather(*(session.close() for session in self._sessions.values()))
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
            self._output.close()
        self._raise_failure()

    def _interrupt(self, number: int) -> None:
        if self._signal:
            for session in self._sessions.values():
                session.send({"stop": True})  # asked twice: no more patience
        self._signal = self._signal or number
        self._stopping.set()

    async def _watch_start(self) -> None:
        """End a start that takes too long, instead of waiting without a word."""
        try:
            async with asyncio.timeout(self._options.start_timeout_s):
                await self._all_started.wait()
        except TimeoutError:
            self._lost = self._lost or "timeout"
            self._stopping.set()

    async def _stop_when_told(self) -> None:
        await self._stopping.wait()
        for hello in self._hellos.values():
            hello.cancel()
        silent = {state.place.host for state in self.states if not state.has_answered}
        for name, session in self._sessions.items():
            if name in silent:
                session.kill()  # its remote shell never answered
            else:
                # An mpirun asks its ranks by its wrapper, and would end them at once if it were told too.
                patience = {"grace_s": SAVING_LIMIT_S, "only_first": not self._tell_place}
                session.send({"stop": True} | (patience if self._signal == signal.SIGTERM else {}))

    async def _open_all(self, followers: list[asyncio.Task[None]]) -> None:
        program = RANK_SUPERVISOR.read_text(encoding="utf-8")
        loop = asyncio.get_running_loop()
        for name in self._hosts:
            self._hellos[name] = loop.create_future()
            try:
                session = await HostSession.open(
                    name, self._options.shell, program, is_local=self._options.is_local(name)
                )
            except OSError as error:
                raise UserError(
                    f"cannot run the remote shell `{self._options.shell.program}`: {error.strerror}",
                    hint="install an ssh client, or name another with --remote-shell",
                ) from error
            self._sessions[name] = session
            followers.append(asyncio.create_task(self._follow(session)))
        first = master_port(self._program)
        ports = [
            MASTER_PORT_FIRST + (first - MASTER_PORT_FIRST + step) % MASTER_PORT_COUNT
            for step in range(_PORTS_TRIED)
        ]
        for session in self._sessions.values():
            session.send({"ports": ports})
        await asyncio.wait([*self._hellos.values()])

    async def _start_all(self) -> None:
        """Tell every supervisor its ranks; all hosts have answered."""
        options = self._options
        places = [state.place for state in self.states]
        hello = self._hellos[places[0].host].result()
        addresses: dict[str, str] = hello["addresses"]  # type: ignore[assignment]
        all_local = all(options.is_local(name) for name in self._hosts)
        interface = options.interfaces[0] if options.interfaces else ""
        port = int(str(hello["port"]))
        if port == 0:
            raise StartError(f"no free port for rank 0 on `{places[0].host}`")
        master = (master_address(places, addresses, interface, all_local=all_local), port)
        for name, members in self._hosts.items():
            is_local = options.is_local(name)
            variables = forwarded_variables(options.environment)
            env = watched(options.environment, self._program) if is_local else variables
            ranks = [
                {
                    "rank": place.rank,
                    "argv": list(options.command),
                    "env": env
                    | (place_variables(place, master, options.interfaces) if self._tell_place else {}),
                }
                for place in members
            ]
            self._sessions[name].send({"start": ranks, "cwd": options.cwd})

    async def _follow(self, session: HostSession) -> None:
        """Take a host's events until its session ends; a session that ends early is a lost host."""
        async for event, rank, payload in session.events():
            self._take(session, event, rank, payload)
        left = [s for s in self.states if s.place.host == session.host and s.exit_code is None]
        if left and not self._stopping.is_set():
            code = await session.process.wait()
            await asyncio.sleep(0)
            words = session.last_words() or (
                "it has no python3" if code == EXIT_NO_PYTHON else f"its remote shell ended with code {code}"
            )
            for state in left:
                state.to(f"lost: {words}")
            self._lost, self._lost_words = session.host, words
            self._stopping.set()

    def _take(self, session: HostSession, event: str, rank: int, payload: bytes) -> None:
        if event == "hello":
            for state in self.states:
                if state.place.host == session.host:
                    state.to("its host answered, waits for the others")
            if not self._hellos[session.host].done():
                self._hellos[session.host].set_result(json.loads(payload))
            return
        state = self.states[rank]
        if event in ("out", "err"):
            self._output.feed(rank, "stdout" if event == "out" else "stderr", payload)
        elif event == "started":
            state.to(f"runs as process {payload.decode()}", started=True)
            if all(one.has_started for one in self.states):
                self._all_started.set()
        elif event == "failed":
            state.exit_code = EXIT_NO_PYTHON
            state.to(f"could not be started: {payload.decode(errors='replace')}")
            self._fail(state)
        elif event == "exit":
            self._output.end_rank(rank)
            state.exit_code = int(payload)
            state.to(f"exited with code {state.exit_code}")
            if state.exit_code:
                self._fail(state)

    def _fail(self, state: RankState) -> None:
        if self._failure is None and not self._stopping.is_set():
            self._failure = state
            self._stopping.set()

    def _raise_failure(self) -> None:
        """Turn the first thing that went wrong into an error."""
        if self._signal and all(state.exit_code == EXIT_RESUME for state in self.states):
            raise JobFailedError(
                f"ended by signal {self._signal}: all ranks saved and ended",
                exit_code=EXIT_RESUME,
                hint="start it again: it goes on there",
            )
        if self._signal:
            ended = "interrupted" if self._signal == signal.SIGINT else f"ended by signal {self._signal}"
            raise JobFailedError(f"{ended}: all ranks were ended", exit_code=128 + self._signal)
        if self._failure is not None:
            raise rank_error(self._failure, self._output.tail(self._failure.place.rank))
        if self._lost == "timeout":
            table = state_table(self.states, time.monotonic())
            raise StartError(
                f"not all ranks were started within {self._options.start_timeout_s:.0f} s; all were ended"
                f"\n\n{table}",
                hint="`gangline check --hosts …` says what is wrong; --start-timeout waits longer",
            )
        if self._lost:
            words = self._lost_words
            if self._all_started.is_set():
                raise JobFailedError(f"host `{self._lost}` was lost: {words}; all other ranks were ended")
            raise StartError(
                f"host `{self._lost}` cannot be used: {words}",
                hint=f"`gangline check --hosts {self._lost}` says more",
            )


def rank_error(state: RankState, tail: Sequence[str]) -> JobFailedError:
    """Return the error that names a failed rank, its host, how it ended and its last lines."""
    place, code = state.place, state.exit_code or 1
    words = cause_of_code(code).ending if is_signal(code) else state.state
    message = f"rank {place.rank} of {place.size} on `{place.host}` {words}; all other ranks were ended"
    if tail and place.size > 1:
        shown = "\n".join(f"  {line}" for line in tail[-5:])
        message += f"\n\nits last lines:\n{shown}"
    return JobFailedError(message, exit_code=code)
