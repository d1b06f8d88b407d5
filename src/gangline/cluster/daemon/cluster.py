"""Start, find and stop the processes of the one-machine cluster.

Two daemons in sessions of their own, so that no Ctrl-C reaches them: the server, and the node agent that the
server starts. Each starts the other again when that was killed, and holds a lock file by which this is known.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gangline.api.resources import PODS
from gangline.cluster.api_access import api_connection
from gangline.cluster.control_plane.programs import check_programs
from gangline.cluster.daemon.agent_refusal import check_refusal
from gangline.cluster.daemon.cluster_facts import (
    ISOLATIONS,
    KUBERNETES,
    NO_SIMULATION,
    NODES_MAX,
    OWN,
    ClusterFacts,
    decide_facts,
    load_facts,
    note_use,
    refuse_another_operator,
    refuse_another_plane,
    refuse_other_bounds,
    save_facts,
)
from gangline.cluster.daemon.daemon import is_alive, log_tail, spawn_daemon
from gangline.cluster.daemon.folders import make_private_folders, mounts_under
from gangline.cluster.daemon.own_loop import run_in_own_loop
from gangline.cluster.daemon.readiness import add_absent_nodes, missing
from gangline.cluster.daemon.restarts import forget_restarts, note_restart, take_notices
from gangline.cluster.daemon.simulation import Simulation, refuse_another
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.process_lock import LockState, ProcessLock, read_lock
from gangline.cluster.runs.bounds import Bounds
from gangline.errors import ClusterError, UserError
from gangline.kube.client import Client
from gangline.placement import SuspensionBounds

START_TIMEOUT_S = {OWN: 30.0, KUBERNETES: 90.0}
STOP_TIMEOUT_S = 15.0
START_LOCK_TIMEOUT_S = 60.0
STARTS_MAX = 5
"""Times that a command starts the server when that is killed while it starts."""
POLL_S = 0.02

Say = Callable[[str], None]
T = TypeVar("T")


class _ServerGoneError(ClusterError):
    """The server was killed while a command waited for it."""


class ClusterStatus(msgspec.Struct, frozen=True):
    """How the processes of a cluster are.

    Attributes:
        server, agent: their locks.
        ready: the API server answers.
        facts: ``None`` when the cluster never ran.
    """

    server: LockState
    agent: LockState
    ready: bool
    facts: ClusterFacts | None


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What :meth:`Cluster.ensure_up` is asked for."""

    nodes: int
    isolation: str
    keep: bool
    simulation: Simulation | None
    control_plane: str
    operator: bool | None
    suspension: SuspensionBounds | None


class Cluster:
    """One cluster of this user. Methods block; each has a bound in seconds."""

    def __init__(self, paths: ClusterPaths) -> None:
        self.paths = paths

    def status(self) -> ClusterStatus:
        """Return how the cluster is; nothing is started or changed."""
        return ClusterStatus(
            server=read_lock(self.paths.lock("server")),
            agent=read_lock(self.paths.lock("agent")),
            ready=self._is_ready(),
            facts=load_facts(self.paths),
        )

    def ensure_up(
        self,
        *,
        nodes: int = 1,
        isolation: str = "",
        keep: bool = False,
        simulation: Simulation | None = None,
        control_plane: str = "",
        operator: bool | None = None,
        suspension: SuspensionBounds | None = None,
        say: Say = lambda text: None,
    ) -> ClusterFacts:
        """Make the cluster run with at least that many Ready nodes, and return its facts.

        Args:
            nodes: at least this many.
            isolation: one of ``ISOLATIONS``, empty for whatever the cluster has.
            keep: ``True`` also takes the end after idle minutes away; ``False`` leaves it as it is.
            simulation: GPUs to simulate, None for whatever the cluster has.
            control_plane: one of ``CONTROL_PLANES``, empty for whatever the cluster has.
            operator: whether our operator runs MPIJobs, None for whatever the cluster has.
            suspension: who is suspended for whom, None for whatever the cluster has.
            say: is told what was found and done, one line each.

        Raises:
            UserError: the running cluster has another isolation, other GPUs, other bounds on suspension or no
                operator where one is asked for, the cluster another control plane, or a bad argument.
            ClusterError: it did not become ready within 30 s, or 90 s under Kubernetes' control plane.
        """
        _check_arguments(nodes, isolation)
        wanted = _Wanted(
            nodes=nodes,
            isolation=isolation,
            keep=keep,
            simulation=simulation.check() if simulation is not None else None,
            control_plane=control_plane,
            operator=operator,
            suspension=suspension,
        )
        make_private_folders(self.paths)
        note_use(self.paths)
        with ProcessLock(self.paths.lock("start")) as start:
            if not start.acquire(timeout_s=START_LOCK_TIMEOUT_S):
                raise ClusterError(
                    f"cannot start cluster `{self.paths.name}`: another start of it takes longer than "
                    f"{START_LOCK_TIMEOUT_S:.0f} s"
                )
            for left in reversed(range(STARTS_MAX)):
                try:
                    facts = self._find_or_start(wanted, say)
                    break
                except _ServerGoneError:
                    if not left:
                        raise
        for process, pid, why in take_notices(self.paths):
            say(self._restarted_line(process, pid, why))
        return facts

    def _find_or_start(self, wanted: _Wanted, say: Say) -> ClusterFacts:
        found = read_lock(self.paths.lock("server"))
        facts = load_facts(self.paths)
        refuse_another_plane(facts, wanted.control_plane)
        if found.state == "held" and facts is not None:
            refuse_another(facts, wanted.simulation or Simulation.of(facts))
            refuse_another_operator(facts, wanted.operator)
            refuse_other_bounds(facts, wanted.suspension)
            facts = self._adjust_running(facts, wanted)
            self._wait_ready(facts, None)
            return facts
        if wanted.simulation is None and facts is not None and found.state == "killed":
            wanted = replace(wanted, simulation=Simulation.of(facts))  # its pods run on and hold them
        return self._start(facts, found, wanted, say)

    def down(self, *, say: Say = lambda text: None) -> bool:
        """Stop server and agent; ``False`` when neither ran. Pods are the caller's to stop before.

        The server ends the agent, the agent its links and namespaces; what stays after 15 s is killed.
        Neither starts the other again meanwhile: the start lock is held.
        """
        with ProcessLock(self.paths.lock("start")) as start:
            try:
                if not start.acquire(timeout_s=START_LOCK_TIMEOUT_S):  # else they start each other again
                    say(f"another start of cluster `{self.paths.name}` takes long; ending it all the same")
            except OSError as error:  # a full disk, on which they cannot start each other either
                say(f"cannot write `{error.filename}`: {error.strerror}; ending it all the same")
            return self._end_processes(say)

    def _end_processes(self, say: Say = lambda text: None) -> bool:
        before = self.status()
        if before.server.state == "held":
            self._stop("server", before.server.pid, say)
        agent = read_lock(self.paths.lock("agent"))
        if agent.state == "held":
            self._stop("agent", agent.pid, say)
        return "held" in (before.server.state, before.agent.state)

    def purge(self) -> None:
        """Remove every file of a cluster that is down."""
        for process in ("server", "agent"):
            if read_lock(self.paths.lock(process)).state == "held":
                raise ClusterError(f"cannot remove cluster `{self.paths.name}`: its {process} still runs")
        if mounts := mounts_under(self.paths.state):
            raise ClusterError(
                f"cannot remove cluster `{self.paths.name}`: `{mounts[0]}` is still mounted",
                hint=f"unmount it first: umount {mounts[0]}",
            )
        shutil.rmtree(self.paths.run, ignore_errors=True)
        shutil.rmtree(self.paths.state, ignore_errors=True)

    def request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Send one request to the API server and return its answer; see :meth:`call`."""
        return self.call(lambda client: client.request(method, path, body=body))

    def call(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        """Return what a client is asked, in an event loop of its own; a server that was killed is waited for.

        Raises:
            ApiError: the server refuses.
            ClusterError: it cannot be reached.
        """

        async def recover() -> None:
            if not await asyncio.to_thread(self.wait_back):
                raise ClusterError(f"cannot reach cluster `{self.paths.name}`: its server does not answer")

        return run_in_own_loop(self._ask(ask, recover))

    async def _ask(
        self, ask: Callable[[Client], Awaitable[T]], recover: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        connection = api_connection(self.paths)
        async with Client(connection, user_agent="gangline-cli", recover=recover) as client:
            return await ask(client)

    def wait_back(self, timeout_s: float | None = None) -> bool:
        """Wait for a server that was killed and that the node agent starts again; whether it answers."""
        deadline = time.monotonic() + (self._patience_s() if timeout_s is None else timeout_s)
        while not self._is_ready():
            is_coming = "held" in (read_lock(self.paths.lock(one)).state for one in ("server", "agent"))
            if not is_coming or time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    # Start -------------------------------------------------------------------------------------------------

    def _start(self, facts: ClusterFacts | None, found: LockState, wanted: _Wanted, say: Say) -> ClusterFacts:
        control_plane = wanted.control_plane or (facts.control_plane if facts else OWN)
        if control_plane == KUBERNETES:
            check_programs()
        Bounds.of(os.environ)  # the server reads them too, where nobody would see the error
        operator = wanted.operator
        fresh = decide_facts(
            self.paths,
            facts,
            nodes=max(wanted.nodes, facts.nodes if facts else 1),  # those of an earlier start are objects
            isolation=wanted.isolation or (facts.isolation if facts else "auto"),
            keep=wanted.keep,
            simulation=wanted.simulation or NO_SIMULATION,
            control_plane=control_plane,
            has_operator=operator if operator is not None else facts is None or facts.has_operator,
            suspension=wanted.suspension,
        )
        if facts is not None and facts.port != fresh.port:
            say(f"port {facts.port} is taken by another program; the API server now listens on {fresh.port}")
        save_facts(self.paths, fresh)
        had_agent = read_lock(self.paths.lock("agent")).state == "held"
        if found.state == "free" and not had_agent:
            forget_restarts(self.paths)
        server = spawn_daemon(self.paths, "server", ["serve-cluster", "--cluster", self.paths.name])
        try:
            self._wait_ready(fresh, server)
        except _ServerGoneError:
            raise
        except ClusterError:
            if server.poll() is not None and not had_agent:
                self._end_processes()  # else what this start began would start it again
            raise
        except UserError:
            self._end_processes()
            if facts is None:
                self.paths.facts.unlink(missing_ok=True)
            else:
                save_facts(self.paths, facts)  # what was asked for does not work here: forget it
            raise
        if found.state == "killed":
            note_restart(self.paths, "server", found.pid, "was killed")
        return fresh

    def _adjust_running(self, facts: ClusterFacts, wanted: _Wanted) -> ClusterFacts:
        if wanted.isolation not in ("", "auto", facts.isolation):
            raise UserError(
                f"cluster `{facts.name}` has isolation `{facts.isolation}`, `{wanted.isolation}` was asked "
                "for",
                hint=f"stop it first with `gangline down --cluster {facts.name}`, or use another --cluster",
            )
        more = replace(facts, nodes=max(wanted.nodes, facts.nodes), keep=wanted.keep or facts.keep)
        if more != facts:
            save_facts(self.paths, more)
        return more

    def _wait_ready(self, facts: ClusterFacts, server: subprocess.Popen[bytes] | None) -> None:
        """Wait until the API server answers, the job kinds are served and every node is Ready."""
        deadline = time.monotonic() + self._patience_s()
        self._wait_answering(server)
        while time.monotonic() < deadline:
            try:
                waiting = run_in_own_loop(self._ask(lambda client: missing(client, facts)))
                if waiting and server is None:  # it runs with as many nodes as it was started with
                    run_in_own_loop(self._ask(lambda client: add_absent_nodes(client, facts)))
            except ClusterError:
                waiting = "its server"
            if not waiting:
                return
            self._check_alive(server)
            check_refusal(self.paths)
            time.sleep(POLL_S)
        raise ClusterError(
            f"cluster `{self.paths.name}` did not become ready within {self._patience_s():.0f} s: "
            f"waiting for {waiting}",
            hint=f"its logs are {self.paths.log('server')} and {self.paths.log('agent')}",
        )

    def _wait_answering(self, server: subprocess.Popen[bytes] | None) -> None:
        deadline = time.monotonic() + self._patience_s()
        while not self._is_ready():
            self._check_alive(server)
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the server of cluster `{self.paths.name}` is silent for {self._patience_s():.0f} s",
                    hint=f"its log is {self.paths.log('server')}; `gangline down` ends it",
                )
            time.sleep(POLL_S)

    def _patience_s(self) -> float:
        facts = load_facts(self.paths)
        return START_TIMEOUT_S[facts.control_plane if facts else OWN]

    def _is_ready(self) -> bool:
        return run_in_own_loop(self._ask(Client.is_ready))

    def _check_alive(self, server: subprocess.Popen[bytes] | None) -> None:
        """Raise when the server that is waited for has ended; ``server`` when it was started here."""
        if server is None:
            if read_lock(self.paths.lock("server")).state != "held":
                raise _ServerGoneError(f"the server of cluster `{self.paths.name}` was killed")
            return
        if server.poll() is None:
            return
        if server.returncode < 0:
            raise _ServerGoneError(f"the server of cluster `{self.paths.name}` was killed while starting")
        tail = log_tail(self.paths.log("server"))
        raise ClusterError(
            f"the server of cluster `{self.paths.name}` ended with code {server.returncode} while starting:\n"
            + "\n".join(f"  {line}" for line in tail),
            hint=f"its log is {self.paths.log('server')}",
        )

    # What is found -----------------------------------------------------------------------------------------

    def _restarted_line(self, process: str, pid: int, why: str) -> str:
        title = {"agent": "node agent"}.get(process, process)
        return (
            f"the {title} of cluster `{self.paths.name}` {why} (process {pid}); "
            f"restarted, {describe_adopted(self.running_pods())}"
        )

    def running_pods(self) -> int:
        """Return how many pods are running, 0 when the server does not answer."""
        try:
            return len(
                self.call(lambda client: client.list(PODS, field_selector="status.phase=Running")).items
            )
        except ClusterError:
            return 0

    def isolation_in_use(self) -> str:
        """Return how the node agent keeps pods apart, as it reports; empty while it has not."""
        return str(self._agent_report().get("isolation", ""))

    def outside(self) -> str:
        """Return whether pods with addresses of their own reach the outside of the machine, in words.

        Empty while the agent has not reported, and where pods are on the machine's network.
        """
        found = self._agent_report().get("outside")
        if not isinstance(found, dict):
            return ""
        note = found.get("note", "")
        words = "pods reach it" if found.get("open") else "pods do not reach it"
        return f"{words}{': ' if note and not found.get('open') else '; ' if note else ''}{note}"

    def _agent_report(self) -> dict[str, Any]:
        try:
            found = json.loads((self.paths.state / "agent.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    # Stop --------------------------------------------------------------------------------------------------

    def _stop(self, process: str, pid: int, say: Say) -> None:
        """End one process by its id in order, then by force; the lock proves that the id is still its own."""
        lock = self.paths.lock(process)
        for number, timeout_s in ((signal.SIGTERM, STOP_TIMEOUT_S), (signal.SIGKILL, 2.0)):
            if number == signal.SIGKILL:
                say(f"the {process} (process {pid}) did not end within {STOP_TIMEOUT_S:.0f} s; killing it")
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
            deadline = time.monotonic() + timeout_s
            while time.monotonic() < deadline:
                if read_lock(lock).state != "held" and not is_alive(pid):
                    return
                time.sleep(POLL_S)


def describe_adopted(count: int) -> str:
    """Return the words for that many pods found running."""
    return f"{count} running pod{'' if count == 1 else 's'} adopted"


def _check_arguments(nodes: int, isolation: str) -> None:
    if not 1 <= nodes <= NODES_MAX:
        raise UserError(f"a one-machine cluster has 1 to {NODES_MAX} nodes, {nodes} were asked for")
    if isolation and isolation not in ISOLATIONS:
        raise UserError(f"no isolation is called `{isolation}`; there are `{'`, `'.join(ISOLATIONS)}`")
