"""Which workers train together: one generation after another, as ranks are lost and hosts come. Pure.

A worker is a process; its rank is another one in every generation. It starts, says that it is free, and is
inside of a generation until it says so again: its collectives have failed, or it saw at a commit that a
change is asked for. The next generation begins once nobody is inside of the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gangline.launch.hosts import Host

COOL_DOWN_S = 30.0
"""A host whose worker failed gets no other one for so long, twice as long each further time."""
COOL_DOWN_MAX_S = 600.0
FREE_LIMIT_S = 60.0
"""After a loss the others come out of their collectives within this, or are lost as well."""
JOIN_LIMIT_S = 600.0
"""So long it is waited for enough workers."""


def worker_variables(number: int) -> dict[str, str]:
    """Return the variables by which a worker knows its number; read in ``gangline.train.elastic.board``."""
    return {"GANGLINE_ELASTIC_WORKER": str(number), "PYTHONUNBUFFERED": "1"}


@dataclass(slots=True)
class Worker:
    """A process.

    Attributes:
        number: of its own, in the order of starts.
        host: where it runs.
        state: ``starting`` until it says that it is free for the first time.
        joined: its first generation, 0 before.
    """

    number: int
    host: str
    state: Literal["starting", "free", "inside", "ended"] = "starting"
    joined: int = 0


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a generation, in the order of the ranks."""

    number: int
    host: str
    local_rank: int
    local_size: int
    node_rank: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What workers go by.

    Attributes:
        number: the counter, 0 before the first one.
        is_changing: its members end it at their next commit.
        members: in the order of their ranks; rank 0 is the oldest worker.
        has_lost: one of them is lost, and the others need not wait for it.
    """

    number: int = 0
    is_changing: bool = True
    members: tuple[Member, ...] = ()
    has_lost: bool = False


class TooFewRanksError(Exception):
    """The training cannot go on; ``worker`` was lost last, None when none was."""

    def __init__(self, reason: str, worker: Worker | None, code: int) -> None:
        super().__init__(reason)
        self.worker, self.code = worker, code


@dataclass(slots=True)
class Membership:
    """The workers of one training.

    Args:
        hosts: which may have workers now.
        ranks_min: with fewer nobody trains.
        ranks_max: more are never started.
        restarts_max: failures of ranks that are survived, their hosts' own not counted.
        now: on a monotonic clock.
        cool_down_s: see COOL_DOWN_S.
        join_limit_s: see JOIN_LIMIT_S.
    """

    hosts: Sequence[Host]
    ranks_min: int
    ranks_max: int
    restarts_max: int
    now: float
    cool_down_s: float = COOL_DOWN_S
    join_limit_s: float = JOIN_LIMIT_S
    generation: Generation = field(default_factory=Generation)
    workers: dict[int, Worker] = field(default_factory=dict)
    is_finished: bool = False
    losses: int = 0
    _failures: dict[str, int] = field(default_factory=dict)
    _cool_until: dict[str, float] = field(default_factory=dict)
    _lost_at: float | None = None
    _waits_since: float = 0.0

    def __post_init__(self) -> None:
        self._waits_since = self.now

    def names(self) -> set[str]:
        """Return the hosts that may have workers now."""
        return {host.name for host in self.hosts}

    def change_hosts(self, hosts: Sequence[Host]) -> None:
        """Let these hosts have workers; one that was away and is back has nothing to wait out."""
        self.hosts = hosts
        for gone in self._failures.keys() - self.names():
            del self._failures[gone], self._cool_until[gone]

    def alive(self, *states: str) -> list[Worker]:
        """Return the workers that have not ended, in some states or in any."""
        states = states or ("starting", "free", "inside")
        return [worker for worker in self.workers.values() if worker.state in states]

    def starts(self, now: float) -> list[Worker]:
        """Return new workers, to be started on hosts that have room and are not cooling down."""
        new: list[Worker] = []
        for host in self.hosts:
            if self.is_finished or self._cool_until.get(host.name, 0.0) > now:
                continue
            here = sum(worker.host == host.name for worker in self.alive())
            for _ in range(min(host.slots - here, self.ranks_max - len(self.alive()))):
                worker = Worker(len(self.workers), host.name)
                self.workers[worker.number] = worker
                new.append(worker)
        return new

    def is_free(self, number: int) -> None:
        """Note that a worker is inside of no generation."""
        if self.workers[number].state != "ended":
            self.workers[number].state = "free"

    def ended(self, number: int, code: int, now: float) -> None:
        """Note the end of a worker.

        Raises:
            TooFewRanksError: it is one loss too many, or nobody is left.
        """
        worker = self.workers[number]
        if code == 0:
            self.is_finished |= worker.state == "inside"
            worker.state = "ended"
            return
        self.losses += worker.host in self.names()
        self._lose([worker], code, now)
        if self.losses > self.restarts_max:
            times = "once" if self.losses == 1 else f"{self.losses} times"
            raise TooFewRanksError(
                f"failed; ranks were lost {times}, --max-restarts {self.restarts_max} allows no more",
                worker,
                code,
            )

    def host_ended(self, host: str, code: int, now: float) -> None:
        """Note that a host is gone with its workers, which is no failure of theirs.

        Raises:
            TooFewRanksError: nobody is left.
        """
        if lost := [worker for worker in self.alive() if worker.host == host]:
            self._lose(lost, code, now)

    def _lose(self, lost: Sequence[Worker], code: int, now: float) -> None:
        is_change = any(worker.state == "inside" for worker in lost)
        for worker in lost:
            worker.state = "ended"
        self._cool(lost[0].host, now)
        if self.is_finished and not is_change:
            return
        if self.is_finished:
            raise TooFewRanksError("failed after others had ended", lost[0], code)
        has_begun = self.generation.number > 0
        if not any(worker.joined or not has_begun for worker in self.alive()):
            raise TooFewRanksError("failed, and no other rank is left that has trained", lost[0], code)
        if is_change:
            self._lost_at = now
            self.generation = replace(self.generation, is_changing=True, has_lost=True)

    def late(self, now: float) -> list[Worker]:
        """Return workers that are still inside long after a loss: they wait where nothing frees them."""
        if self._lost_at is None or now - self._lost_at < FREE_LIMIT_S:
            return []
        return self.alive("inside")

    def decide(self, now: float, *, is_start_over: bool) -> bool:
        """Go on to the next generation where it can begin, ask for one where it is wanted; return whether so.

        Args:
            now: on a monotonic clock.
            is_start_over: the first generation begins with those that are there.

        Raises:
            TooFewRanksError: enough workers did not come in time.
        """
        if self.is_finished:
            return False
        names = self.names()
        free = [worker for worker in self.alive("free") if worker.host in names]
        inside = self.alive("inside")
        if not self.generation.is_changing:
            self._waits_since = now
            leaving = [worker for worker in inside if worker.host not in names]
            stay = len(inside) - len(leaving) + len(free)
            if (free or leaving) and stay >= self.ranks_min:
                self.generation = replace(self.generation, is_changing=True)
                return True
            return False
        if inside or (self.generation.number == 0 and self.alive("starting") and not is_start_over):
            return False
        if len(free) < self.ranks_min:
            if now - self._waits_since > self.join_limit_s:
                raise TooFewRanksError(
                    f"{len(free)} ranks are left, at least {self.ranks_min} are wanted, and no more came in "
                    f"{self.join_limit_s:.0f} s",
                    None,
                    1,
                )
            return False
        self._begin(free)
        return True

    def _begin(self, free: list[Worker]) -> None:
        number = self.generation.number + 1
        ordered = sorted(free, key=lambda worker: (worker.joined or number, worker.number))
        nodes = list(dict.fromkeys(worker.host for worker in ordered))
        members = []
        for place, worker in enumerate(ordered):
            here = [index for index, other in enumerate(ordered) if other.host == worker.host]
            node = nodes.index(worker.host)
            members.append(Member(worker.number, worker.host, here.index(place), len(here), node))
            worker.state, worker.joined = "inside", worker.joined or number
        self.generation = Generation(number, False, tuple(members))
        self._lost_at = None

    def _cool(self, host: str, now: float) -> None:
        count = self._failures[host] = self._failures.get(host, 0) + 1
        self._cool_until[host] = now + min(COOL_DOWN_MAX_S, self.cool_down_s * 2 ** (count - 1))
