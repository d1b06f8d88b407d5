"""Start ranks on hosts with the MPI that is there, follow them, and say which failed or never started.

``mpirun`` runs under the same supervisor as ranks without MPI, so it ends with the launcher in every case.
Each rank says a line when it starts; those lines make the table of states, and are not shown.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.errors import JobFailedError, UserError
from gangline.launch.hosts import RankHost, host_list, hosts_of
from gangline.launch.hydra_tags import HydraTags
from gangline.launch.mpi import MpiInstallation
from gangline.launch.mpirun import SAY_END, RankRequest, mpirun_line
from gangline.launch.rank_failure import LauncherOutput, take_record
from gangline.launch.rank_logs import RankLogs
from gangline.launch.rank_output import RankOutput
from gangline.launch.rank_places import forwarded_variables
from gangline.launch.rank_start import (
    START_TIMEOUT_S,
    RankStart,
    RankState,
    StartError,
    StartOptions,
    rank_error,
    state_table,
)
from gangline.launch.rank_tags import RankTags, untagged
from gangline.launch.remote_host import RemoteShell

_MARK = "gangline-rank-started"
_STARTED = re.compile(rb"(?:\[\d+,(\d+)\]<stdout>: ?)?gangline-rank-started (\d+) (\S+)$")
_WRAPPER = Path(__file__).with_name("wrapper") / "mpirun_wrapper.py"
_PATH = "GANGLINE_RANK_PATH"
_OWN_PATH = f'PATH="${_PATH}"; export PATH; unset {_PATH}; '
"""Open MPI puts its own folder first on the ranks' PATH, and with it the Python that may lie there."""
_SAY_STARTED = f'echo "{_MARK} $RANK $(uname -n)"; '
_RUN_OPEN_MPI = f'{_SAY_STARTED}exec "$@"'
_RUN_HYDRA = (
    f'{_SAY_STARTED}"$@" & own=$!; trap "kill -TERM $own 2>/dev/null" TERM INT HUP; wait $own; {SAY_END}'
)
"""Hydra goes on when a rank fails that has not called MPI_Init yet."""


@dataclass(frozen=True, slots=True)
class MpiPlan:
    """What ``mpirun`` is to do.

    Attributes:
        mpi: the one that is used.
        places: of all ranks.
        options: how they are started.
        master: host and port at which rank 0 is to listen.
        silent: hosts that gave no answer when they were asked.
        is_remote: whether any host is not this machine.
        log_folder: where each rank's output is written too, None for nowhere.
    """

    mpi: MpiInstallation
    places: Sequence[RankHost]
    options: StartOptions
    master: tuple[str, int]
    silent: frozenset[str] = frozenset()
    is_remote: bool = True
    log_folder: Path | None = None


def mpi_line(plan: MpiPlan) -> list[str]:
    """Return the command line, for hosts that have as many slots as ranks. Pure.

    Raises:
        UserError: hosts take different numbers of ranks, and the MPI is MPICH or Intel MPI.
    """
    hosts = hosts_of(plan.places)
    environment = {"MASTER_ADDR": plan.master[0], "MASTER_PORT": str(plan.master[1])}
    environment[_PATH] = plan.options.environment.get("PATH", os.defpath)
    if plan.options.interfaces:
        all_of_them = ",".join(plan.options.interfaces)
        environment |= {"NCCL_SOCKET_IFNAME": all_of_them, "GLOO_SOCKET_IFNAME": plan.options.interfaces[0]}
    names = sorted(set(forwarded_variables(plan.options.environment)) - set(environment) - {"PATH"})
    ranks = RankRequest(
        count=len(plan.places),
        per_host=hosts[0].slots,
        environment=environment,
        forwarded=() if plan.mpi.flavour != "openmpi" else ("PATH", *names),
        working_dir=plan.options.cwd,
    )
    script = _OWN_PATH + (_RUN_OPEN_MPI if plan.mpi.flavour == "openmpi" else _RUN_HYDRA)
    line = mpirun_line(plan.mpi, ranks, ["sh", "-c", script, "rank", *plan.options.command])
    return [*line[:3], *_host_words(plan), *line[3:]]


def _host_words(plan: MpiPlan) -> list[str]:
    """Return the words that name hosts, binding and interface."""
    hosts, interfaces = hosts_of(plan.places), plan.options.interfaces
    if plan.mpi.flavour == "openmpi":
        words = ["-H", host_list(hosts), "--bind-to", "none", "--map-by", "slot"]
        if interfaces:
            words += ["--mca", "btl_tcp_if_include", ",".join(interfaces)]
        return words
    first = hosts[0].slots
    if any(host.slots != first for host in hosts[:-1]) or hosts[-1].slots > first:
        raise UserError(
            f"{plan.mpi.title} takes the same number of ranks on every host, not {host_list(hosts)}",
            hint="use equal slots, or --no-mpi for a program that needs no MPI",
        )
    words = ["-hosts", ",".join(host.name for host in hosts)]
    if interfaces:
        words += ["-iface", interfaces[0]]
    return words


def launcher_variables(mpi: MpiInstallation, shell: RemoteShell | None) -> dict[str, str]:
    """Return variables for ``mpirun`` itself: remote shell, no refusal of root, no slow search for RDMA."""
    flavour = mpi.flavour
    if flavour == "openmpi":
        variables = {
            name: "1"
            for family in ("OMPI", "PRTE")
            for name in (f"{family}_ALLOW_RUN_AS_ROOT", f"{family}_ALLOW_RUN_AS_ROOT_CONFIRM")
        }
        if shell is not None:
            agent = " ".join([shell.program, *_shell_words(shell)])
            variables |= {"OMPI_MCA_plm_rsh_agent": agent, "PRTE_MCA_plm_ssh_agent": agent}
        if not Path("/sys/class/infiniband").is_dir():
            variables["OMPI_MCA_pml"] = "ob1"
        return variables
    prefix = "HYDRA_LAUNCHER" if flavour == "mpich" else "I_MPI_HYDRA_BOOTSTRAP"
    variables = {} if shell is None else {prefix: "ssh", f"{prefix}_EXEC": shell.program}
    if shell is not None and (words := _shell_words(shell)):
        extra = "HYDRA_LAUNCHER_EXTRA_ARGS" if flavour == "mpich" else "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"
        variables[extra] = " ".join(words)
    if flavour == "intel" and not Path("/sys/class/infiniband").is_dir():
        variables["FI_PROVIDER"] = "tcp"
    return variables


def _shell_words(shell: RemoteShell) -> list[str]:
    """Return the shell's options; one with a ``=`` would be cut by Open MPI 5 where hosts start others."""
    words = ["-p", str(shell.port)] if shell.port else []
    return words + (["-i", shell.identity] if shell.identity else [])


def wrapped_line(mpi: MpiInstallation, line: Sequence[str]) -> list[str]:
    """Return the line with ``mpirun`` behind the wrapper that mends it, unless it is that wrapper itself."""
    with mpi.mpirun.open("rb") as file:
        is_wrapper = b"mpirun_wrapper" in file.read(2048)
    if is_wrapper:
        return [str(mpi.mpirun), *line[1:]]
    return [sys.executable, "-I", "-S", str(_WRAPPER), str(_WRAPPER.with_name("mpirun")), *line[1:]]


class _MpiOutput(RankOutput):
    """Takes the output of ``mpirun``: notes which ranks started, and what it says of a failure."""

    def __init__(
        self,
        show: Callable[[str, bytes], None],
        states: Sequence[RankState],
        is_hydra: bool,
        log_folder: Path | None = None,
    ) -> None:
        self.failures = LauncherOutput()
        self.all_started = asyncio.Event()
        self.ended_badly: list[RankState] = []
        self.on_failure: Callable[[], None] = lambda: None
        self._states = states
        self._rank_tags = RankTags()
        self._hydra = {stream: HydraTags() for stream in ("stdout", "stderr") if is_hydra}
        self._show_text = show
        self._rank_logs = RankLogs(log_folder, len(states)) if log_folder is not None else None
        super().__init__(self._note)

    def feed(self, rank: int, stream: str, data: bytes) -> None:
        """Take a piece of the launcher's output."""
        super().feed(rank, stream, self._hydra[stream].feed(data) if self._hydra else data)

    def end_rank(self, rank: int) -> None:
        """Show what is left."""
        for stream, tags in self._hydra.items():
            if rest := tags.flush():
                super().feed(rank, stream, rest)
        super().end_rank(rank)
        if rest := self._rank_tags.flush():
            self._show_text("stdout", rest)

    def close(self) -> None:
        """Close the files of the ranks."""
        if self._rank_logs is not None:
            self._rank_logs.close()

    def _note(self, stream: str, line: bytes) -> None:
        if match := _STARTED.match(line.rstrip()):
            state = self._states[int(match.group(2))]
            state.to(f"runs on {match.group(3).decode(errors='replace')}", started=True)
            if all(one.has_started for one in self._states):
                self.all_started.set()
            return
        text = line.decode(errors="surrogateescape")
        self.failures.feed(text)
        before, record = take_record(text)
        if record is not None:
            if record["kind"] == "rank-ended":
                self._note_end(self._states[record["rank"]], record["code"])
            if not before:
                return
            line = before.encode(errors="surrogateescape") + b"\n"  # the program's last line had no end
        if self._rank_logs is not None:
            for rank, its_stream, words in untagged(line):
                self._rank_logs.write(rank, its_stream, words)
        # Ranks' lines come on both streams with tags; the launcher's own words have none.
        self._show_text(stream, self._rank_tags.feed(line) if stream == "stdout" else RankTags().feed(line))

    def _note_end(self, state: RankState, code: int) -> None:
        state.exit_code = code
        state.to(f"exited with code {code}")
        self.ended_badly.append(state)
        if self._hydra and len(self.ended_badly) == 1:
            self.on_failure()

    @property
    def failed(self) -> RankState | None:
        """The first rank that failed where it is for us to end the others."""
        return self.ended_badly[0] if self._hydra and self.ended_badly else None


async def run_with_mpi(plan: MpiPlan, show: Callable[[str, bytes], None]) -> None:
    """Start the ranks and return when all have ended well.

    Raises:
        JobFailedError: a rank failed; the message names it.
        StartError: not all ranks were started in time; the message has a table of their states.
    """
    waits = "not started by mpirun yet"
    states = [
        RankState(place, "its host did not answer" if place.host in plan.silent else waits)
        for place in plan.places
    ]
    output = _MpiOutput(show, states, plan.mpi.flavour != "openmpi", plan.log_folder)
    environment = dict(plan.options.environment) | launcher_variables(
        plan.mpi, plan.options.shell if plan.is_remote else None
    )
    environment["PATH"] = f"{plan.mpi.bin}{os.pathsep}{environment.get('PATH', os.defpath)}"
    launcher = replace(
        plan.options,
        command=wrapped_line(plan.mpi, mpi_line(plan)),
        environment=_without_ranks(environment),
        is_local=lambda name: True,
        start_timeout_s=plan.options.start_timeout_s
        + START_TIMEOUT_S,  # `_watch` knows of the ranks themselves
    )
    start = RankStart([RankHost(0, 1, "localhost", 0, 1, 0, 1, 0)], launcher, output, tell_place=False)
    output.on_failure = start.stop
    watch = asyncio.create_task(_watch(start, output, plan.options.start_timeout_s))
    try:
        await start.run()
    except JobFailedError as error:
        if start.was_interrupted:
            raise
        if output.failed is not None:
            raise rank_error(output.failed, output.failures.tail(output.failed.place.rank)) from error
        if watch.done() and not watch.cancelled():
            raise _late(states, plan.options.start_timeout_s) from error
        raise _failure(plan, output, error) from error
    finally:
        watch.cancel()
    if output.failed is not None:
        raise rank_error(output.failed, output.failures.tail(output.failed.place.rank))
    if watch.done() and not watch.cancelled() and not output.all_started.is_set():
        raise _late(states, plan.options.start_timeout_s)


async def _watch(start: RankStart, output: _MpiOutput, limit_s: float) -> None:
    """End a start in which some rank never says that it runs; return only then."""
    try:
        async with asyncio.timeout(limit_s):
            await output.all_started.wait()
    except TimeoutError:
        start.stop()
        return
    await asyncio.Event().wait()


def _late(states: Sequence[RankState], limit_s: float) -> StartError:
    return StartError(
        f"not all ranks were started within {limit_s:.0f} s; all were ended"
        f"\n\n{state_table(states, time.monotonic())}",
        hint="`gangline check --hosts …` says what is wrong; --start-timeout waits longer",
    )


def _failure(plan: MpiPlan, output: _MpiOutput, error: JobFailedError) -> JobFailedError:
    """Return the error that names rank and host, from the launcher's own words."""
    found = output.failures.failure(error.exit_code)
    if found is None:
        return error
    cause = found.cause
    if cause.rank is None:
        code = 1 if cause.host else error.exit_code  # mpirun's own codes for a lost host differ by chance
        return JobFailedError(f"{cause}; all ranks were ended", exit_code=code)
    host = plan.places[cause.rank].host if cause.rank < len(plan.places) else cause.host
    message = (
        f"rank {cause.rank} of {len(plan.places)} on `{host}` {cause.ending}; all other ranks were ended"
    )
    if found.lines and not found.is_last:
        message += "\n\nits last lines:\n" + "\n".join(f"  {line}" for line in found.lines[-5:])
    return JobFailedError(message, exit_code=cause.exit_code or error.exit_code)


def _without_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what another launcher told this process about its place."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    return {name: value for name, value in environment.items() if name not in names}
