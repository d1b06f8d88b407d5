"""Which ranks wait and for whom, judged from outside of any Python program: pure, time is an argument.

Ranks that use `gangline.train` say themselves how they are. Of others a look at their processes tells: who is
stopped, who uses no CPU, and, where a rank was asked (`gangline.launch.rank_hook`), its stack and whether its
main thread has run Python since. A rank that has not run Python since it was asked is in one native call; it
waits for other ranks where that call is one of torch.distributed or MPI. What such waiting means for the
others is `gangline.train.stall_detection`'s rule: who does not wait while others do, for 45 s, is named.

Not judged: all ranks in long computations, sleeps and loading of data, for nobody waits then; ranks in calls
whose name says nothing, such as a library that calls MPI itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gangline.train.stacks import shorten
from gangline.train.stall_detection import (
    PATIENCE_MAX,
    SILENT_AFTER_S,
    Heartbeat,
    Notices,
    Silence,
    silent_ranks,
)

LOOK_PERIOD_S = 2.0
LATE_LOOK_S = 5 * LOOK_PERIOD_S
"""A look that comes so late was not taken in time: the observer, or the whole machine, was held up."""
IDLE_AFTER_S = 2 * LOOK_PERIOD_S
ASK_PERIOD_S = 2 * LOOK_PERIOD_S
"""A suspicious world is asked so often. Begin of a wait to its name: at most 6 + 45 + 2 s."""
IDLE_SHARE = 0.05
"""Of a core; a rank that uses less sleeps. A waiting rank of torch and gloo was measured at under 0.01."""
WAITS_AFTER_S = 10.0
"""Waits that are shorter are part of every step and are no event."""
STOPPED_LOOKS = 2
STEP_S = PATIENCE_MAX * SILENT_AFTER_S / 3
"""Length of the longest step, which is not known here: silence's patience is at its most (45 s) with this."""
STACK_AGE_MAX_S = 2 * ASK_PERIOD_S
SHOWN_MAX = 3

# for example `    comm.Allreduce(part, whole)` and `work.wait()`
_CALL = re.compile(
    r"\.(?:[Bb]arrier|I?[Bb]cast|(?:[Aa]ll)?(?:[Rr]educe|[Gg]atherv?)|[Rr]educe_[Ss]catter(?:_block)?|"
    r"[Ss]catterv?|[Aa]lltoall[vw]?|[Ss]can|[Ee]xscan|[Ss]s?end|[Rr]ecv|[Ss]endrecv(?:_replace)?|M?[Pp]robe|"
    r"[Ww]ait(?:all|any|some)?|[Ss]plit|[Dd]up|[Ff]ence|Create|Spawn|Accept|Connect|Disconnect|Free)\("
)

Frame = tuple[str, int, str]
"""File, line, function."""


@dataclass(frozen=True, slots=True)
class RankStack:
    """A rank's stack at the time that it was asked, and whether it has run Python since.

    Attributes:
        frames: of the main thread, innermost first.
        line: the text of the innermost frame's line, ``""`` where the file cannot be read.
        is_alive: its main thread has run Python since.
    """

    frames: tuple[Frame, ...]
    line: str
    is_alive: bool


@dataclass(frozen=True, slots=True)
class ObservedRank:
    """What is seen of a rank at one time.

    Attributes:
        rank: which one.
        pid: its process, as the reader of what is said knows it.
        place: where it runs, told where ranks of several places are seen.
        cpu_s: of the process until now.
        main_cpu_s: of its main thread.
        stopped: those of its processes that are stopped (not: held by a debugger).
        can_answer: it can be asked.
        libraries: those of ``torch``, ``mpi`` and ``cuda`` that it has loaded.
        answers: that came since the last look, in order.
        ran_since: its main thread has run Python since an answer of an earlier look.
        tells_itself: its program uses `gangline.train`.
    """

    rank: int
    pid: int
    place: str = ""
    cpu_s: float = 0.0
    main_cpu_s: float = 0.0
    stopped: tuple[int, ...] = ()
    can_answer: bool = True
    libraries: frozenset[str] = frozenset()
    answers: tuple[RankStack, ...] = ()
    ran_since: bool = False
    tells_itself: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """A line for people. ``kind`` is ``stopped``, ``busy``, ``mixed`` or ``going-on``; it is about ranks."""

    kind: str
    ranks: tuple[int, ...]
    text: str


@dataclass(slots=True)
class _Track:
    """What is known of a rank over time."""

    last: ObservedRank
    idle_since: float | None = None
    is_asleep: bool = False
    unanswered_since: float | None = None
    waited_at: float = 0.0
    answer: RankStack | None = None
    answered_at: float = 0.0
    stopped_looks: int = 0
    is_over: bool = False

    @property
    def call(self) -> str:
        """``collective``, ``device`` or ``""``: what the native call waits for that it has not left."""
        if self.unanswered_since is None or self.answer is None or not self.answer.frames:
            return ""
        file = self.answer.frames[0][0]
        libraries = self.last.libraries
        # Where gradients are exchanged in a backward pass, the Python frame is that of the pass.
        is_backward = "/torch/autograd/" in file and self.is_asleep and "cuda" not in libraries
        # MPI waits busily, so its ranks never look asleep.
        is_named = bool(_CALL.search(self.answer.line)) and (self.is_asleep or "mpi" in libraries)
        if "/torch/distributed/" in file or is_backward or is_named:
            return "collective"
        # A call that awaits the GPU awaits NCCL's kernels too; the host spins, wherever in Python that is.
        return "device" if "cuda" in libraries else ""


@dataclass(slots=True)
class World:
    """The ranks of one program, followed over time.

    Attributes:
        size: how many ranks it has; more than are seen where some run on other machines.
    """

    size: int
    _tracks: dict[int, _Track] = field(default_factory=dict)
    _looked_at: float | None = None
    _asked_at: float | None = None
    _turn: int = 0
    _is_troubled: bool = False
    _longest_s: float = 0.0
    _notices: Notices = field(default_factory=Notices)

    def take(self, looks: Sequence[ObservedRank], now_s: float) -> None:
        """Take what is seen now; a rank that was seen before and is missing has ended.

        Args:
            looks: at most one of each rank.
            now_s: on a monotonic clock.
        """
        since_s = now_s - self._looked_at if self._looked_at is not None else 0.0
        self._looked_at = now_s
        if since_s > LATE_LOOK_S:
            self._tracks = {}
            return
        for rank in self._tracks.keys() - {look.rank for look in looks}:
            self._tracks[rank].is_over = True
        for look in looks:
            track = self._tracks.get(look.rank)
            if track is None or track.last.pid != look.pid:
                self._tracks[look.rank] = _Track(look, waited_at=now_s)
            else:
                self._follow(track, look, now_s, since_s)
        is_troubled = any(
            track.stopped_looks or self._waits_s(track) > WAITS_AFTER_S for track in self._active()
        )
        self._turn += self._is_troubled and not is_troubled
        self._is_troubled = is_troubled

    def _follow(self, track: _Track, look: ObservedRank, now_s: float, since_s: float) -> None:
        most_s = IDLE_SHARE * max(since_s, LOOK_PERIOD_S)
        is_idle = look.main_cpu_s - track.last.main_cpu_s < most_s
        track.is_asleep = is_idle and look.cpu_s - track.last.cpu_s < most_s
        track.idle_since = (track.idle_since or now_s - since_s) if is_idle else None
        track.stopped_looks = track.stopped_looks + 1 if look.stopped else 0
        track.is_over = False
        if look.ran_since:
            track.unanswered_since = None
        for answer in look.answers:
            track.answer, track.answered_at = answer, now_s
            if answer.is_alive:
                track.unanswered_since = None
            elif track.unanswered_since is None:
                track.unanswered_since = self._asked_at
        track.last = look
        if track.call:
            track.waited_at = now_s

    def to_ask(self, now_s: float) -> list[int]:
        """Return the ranks that are to be asked now; empty unless some rank may be waiting for others.

        Ranks that sleep may; so may all that have loaded what waits busily (MPI, CUDA).
        """
        able = [track for track in self._active() if track.last.can_answer and track.last.libraries]
        is_due = self._asked_at is None or now_s - self._asked_at >= ASK_PERIOD_S - LOOK_PERIOD_S / 2
        if self.size < 2 or not is_due or any(track.last.tells_itself for track in self._active()):
            return []
        if not any(
            track.last.libraries & {"mpi", "cuda"}
            or (track.idle_since is not None and now_s - track.idle_since >= IDLE_AFTER_S)
            for track in able
        ):
            return []
        self._asked_at = now_s
        return [track.last.rank for track in able if not track.last.stopped]

    def news(self) -> list[Said]:
        """Return what is to be said now: each rank once, and once that it goes on."""
        found = self._found()
        new = self._notices.news(found)
        self._notices.told(new)
        self._longest_s = max([self._longest_s, *(one.waited_s for one in found)])
        said = [self._said(kind, [one for one in new if one.kind == kind]) for kind in _KINDS]
        over = self._notices.over(found, dict.fromkeys(self._tracks, self._turn))
        if left := [rank for rank in over if not self._tracks[rank].is_over]:
            text = f"{_ranks(left)} {'goes' if len(left) == 1 else 'go'} on"
            waited = f"; others had waited {self._longest_s:.0f} s" if self._longest_s else ""
            said.append(Said("going-on", tuple(left), text + waited))
            self._longest_s = 0.0
        return [one for one in said if one is not None]

    def _active(self) -> list[_Track]:
        return [track for _, track in sorted(self._tracks.items()) if not track.is_over]

    def _waits_s(self, track: _Track) -> float:
        if not track.call or track.unanswered_since is None or self._looked_at is None:
            return 0.0
        return max(0.0, self._looked_at - track.unanswered_since)

    def _beats(self) -> list[Heartbeat]:
        """Return the ranks in silence's terms: a step is what lies between two long waits of anybody."""
        now_s = self._looked_at or 0.0
        beats = []
        for rank, track in self._tracks.items():
            waits_s = self._waits_s(track)
            idle_s = waits_s or now_s - track.waited_at
            beats.append(
                Heartbeat(
                    rank, self._turn, idle_s, idle_s, 0.0, waits_s, step_s=STEP_S, is_over=track.is_over
                )
            )
        return beats

    def _found(self) -> list[Silence]:
        """Return the ranks that are stopped, else those that keep others waiting, as they are now."""
        active = self._active()
        waiting = [track for track in active if track.call]
        stopped = [track for track in active if track.stopped_looks >= STOPPED_LOOKS]
        if stopped:
            waits_s = max((self._waits_s(track) for track in waiting), default=0.0)
            others = sum(track not in stopped for track in waiting)
            return [
                Silence(track.last.rank, self._turn, 0.0, "stopped", others, "", waits_s) for track in stopped
            ]
        found = silent_ranks(self._beats())
        is_sure = all(track.call == "collective" for track in waiting)
        return [one for one in found if one.kind != "mixed" or is_sure]

    def _said(self, kind: str, silences: Sequence[Silence]) -> Said | None:
        if not silences:
            return None
        ranks = tuple(one.rank for one in silences)
        words = {"stopped": self._stopped_words, "busy": self._busy_words, "mixed": self._mixed_words}
        return Said(kind, ranks, words[kind](silences))

    def _stopped_words(self, silences: Sequence[Silence]) -> str:
        tracks = [self._tracks[one.rank] for one in silences]
        pids = " ".join(str(pid) for track in tracks for pid in track.last.stopped)
        waits = f"; {_others(silences[0].waiting)} for it" if silences[0].waiting else ""
        return (
            f"{self._names(tracks)} {'is' if len(tracks) == 1 else 'are'} stopped (SIGSTOP or a terminal)"
            f"{waits}; continue with kill -CONT {pids}"
        )

    def _busy_words(self, silences: Sequence[Silence]) -> str:
        tracks = [self._tracks[one.rank] for one in silences]
        waiting = [track for track in self._active() if track.call]
        parts = [
            f"{_others_have(silences[0].waiting)} waited for {_ranks([one.rank for one in silences])} for "
            f"{silences[0].waited_s:.0f} s",
            *(self._where(track) for track in tracks[:SHOWN_MAX]),
            f"{self._names(waiting[:1])} waits{self._at(waiting[0])}",
        ]
        return "; ".join(parts)

    def _mixed_words(self, silences: Sequence[Silence]) -> str:
        waiting = [track for track in self._active() if track.call]
        places = {self._at(track): track for track in reversed(waiting)}
        is_all = len(self._tracks) == self.size
        who = f"all {self.size} ranks" if is_all else "all ranks that run on this machine"
        if len(self._active()) < len(self._tracks):
            who = "all ranks that still run"
        apart = "" if len(places) == 1 else ", at different calls"
        parts = [f"{who} have waited for {silences[0].waited_s:.0f} s{apart}"]
        parts += [
            f"{self._names([track])} waits{at}" for at, track in [*places.items()][: -SHOWN_MAX - 1 : -1]
        ]
        if over := [rank for rank, track in sorted(self._tracks.items()) if track.is_over]:
            parts.append(f"{_ranks(over)} {'has' if len(over) == 1 else 'have'} ended")
        if missing := sorted(set(range(self.size)) - self._tracks.keys()):
            parts.append(f"{_ranks(missing)} cannot be seen from here")
        return "; ".join(parts)

    def _names(self, tracks: Sequence[_Track]) -> str:
        """Return ``rank 1 on node-1 (process 4711)``, or the ranks alone where there are many."""
        if len(tracks) != 1:
            return _ranks([track.last.rank for track in tracks])
        look = tracks[0].last
        is_one_place = len({track.last.place for track in self._tracks.values()}) == 1
        place = "" if is_one_place else f" on {look.place}"
        return f"rank {look.rank}{place} (process {look.pid})"

    def _where(self, track: _Track) -> str:
        name = self._names([track])
        if not track.last.can_answer:
            return f"{name} cannot be asked where it is: no Python, or one with -I, -S or -E"
        if self._looked_at is None or self._looked_at - track.answered_at > STACK_AGE_MAX_S:
            return f"where {name} is cannot be told"
        return f"{name} is{self._at(track)}"

    def _at(self, track: _Track) -> str:
        frames = track.answer.frames if track.answer else ()
        return f" at {shorten(frames)}" if frames else " at an unknown place"


_KINDS = ("stopped", "busy", "mixed")


def _ranks(ranks: Iterable[int]) -> str:
    """Return ``rank 3`` or ``ranks 1, 2, 3 and 5 more``."""
    numbers = sorted(ranks)
    shown = ", ".join(map(str, numbers[:SHOWN_MAX]))
    more = f" and {len(numbers) - SHOWN_MAX} more" if len(numbers) > SHOWN_MAX else ""
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _others_have(count: int) -> str:
    return f"{count} other rank{' has' if count == 1 else 's have'}"


def _others(count: int) -> str:
    return f"{count} other rank{' waits' if count == 1 else 's wait'}"
