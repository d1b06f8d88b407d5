"""Watches over the ranks: every rank says how it is, a watcher names who keeps the others waiting.

A thread in every rank sends a small heartbeat to a few watchers: rank 0, then ranks of other nodes. The first
of them that is not mute itself speaks, so that somebody does whichever ranks stop together. Another thread
writes the same heartbeats into the job's store, from which rank 0 and the second watcher read where datagrams
do not pass; a store whose rank is stopped answers nobody and holds that thread up. What is found goes to
standard error as a line for people, and to standard output as a record. The rule is in
`gangline.train.stall_detection`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any

from gangline.train.environment import Ranks
from gangline.train.heartbeat import HeartbeatSocket, place_of
from gangline.train.process_inspector import UNKNOWN, ProcessInspector, ProcessState, ask, look_at
from gangline.train.records import format_record
from gangline.train.silence.flight_recorder import Flight, open_recorders
from gangline.train.stacks import StackFile, collective_of, describe, is_halted, main_frames
from gangline.train.stall_detection import (
    BEATS,
    SILENT_AFTER_S,
    Heartbeat,
    Notices,
    Silence,
    is_mute,
    silence_line,
    silent_ranks,
    speaks,
    watchers,
)
from gangline.train.traffic import Traffic

STORE_TIMEOUT_S = 10.0
STEP_MEMORY = 0.95
"""What remains of the longest step with each further one: an evaluation is not expected for ever."""


class Watch:
    """One rank's part of the watch.

    Args:
        ranks: this rank's place.
        facts: what every rank said of itself at the start.
        store: that all ranks share.
        traffic: the collectives of this process.
        stack_file: of this process.
        beats: what heartbeats are sent and received with.
        silent_after_s: how long no rank steps before one is named.
        look: is called with the store after every heartbeat.
    """

    def __init__(
        self,
        ranks: Ranks,
        facts: list[dict[str, Any]],
        store: Any,
        traffic: Traffic,
        stack_file: StackFile,
        beats: HeartbeatSocket,
        *,
        silent_after_s: float = SILENT_AFTER_S,
        look: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self.step = 0
        self._look = look
        self._ranks, self._facts, self._traffic = ranks, facts, traffic
        self._stack_file, self._socket = stack_file, beats
        self._watchers = watchers([str(fact["node"]) for fact in facts])
        self._inspector: ProcessInspector | None = None
        self._silent_after_s = silent_after_s
        self._beat_s = silent_after_s / BEATS
        # So long in one and the same collective is waiting, and not just a slow reduction.
        self._waits_after_s = 1.6 * self._beat_s
        self._store = _own_connection(store) if ranks.size > 1 else None
        self._stepped_at = time.monotonic()
        self._longest_step_s = 0.0
        self._is_armed = False
        self._collective: FrameType | None = None
        self._collective_since = 0.0
        self._recorders = open_recorders() if ranks.size > 1 else []
        self._flights = [Flight() for _ in self._recorders]
        self._flown_at = time.monotonic()
        self._flight_since = [self._flown_at for _ in self._recorders]
        self._number, self._lock = 0, threading.Lock()
        self._beat: dict[str, Any] = {}
        self._stop, self._is_abandoned = threading.Event(), False
        self._talker = threading.Thread(target=self._talk, name="gangline-heartbeat", daemon=True)
        self._judge = threading.Thread(target=self._watch, name="gangline-watch", daemon=True)
        self._seen: dict[int, _Seen] = {}
        self._notices = Notices()
        self._looks: dict[int, ProcessState] = {}

    def start(self) -> None:
        """Begin; a single rank has nobody to watch over."""
        if self._store is None:
            return
        if self._ranks.local_rank == 0 and len({fact["node"] for fact in self._facts}) > 1:
            self._inspector = ProcessInspector(
                self._socket.key
            )  # ranks of one node look at each other themselves
        self._seen = {rank: _Seen() for rank in self._read_from_store()}
        self._talker.start()
        self._judge.start()

    def expect_steps(self, done: int) -> None:
        """From now on steps are told, of which `done` are done; without this only gradients count."""
        self.step, self._stepped_at, self._is_armed = done, time.monotonic(), True

    def stepped(self, step: int) -> None:
        """Note that this rank has done a step."""
        now = time.monotonic()
        if self.step:
            self._longest_step_s = max(STEP_MEMORY * self._longest_step_s, now - self._stepped_at)
        self.step, self._stepped_at = step, now

    @property
    def is_over(self) -> bool:
        """Whether it was closed."""
        return self._stop.is_set()

    def close(self) -> None:
        """Say that this rank has ended properly, and end the thread."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._stack_file.close()
        for thread in (self._judge, self._talker):
            if thread.is_alive():
                thread.join(STORE_TIMEOUT_S)
        self._socket.close()
        if self._inspector is not None:
            self._inspector.close()
        self._store = None

    def abandon(self) -> None:
        """End without a word and without waiting: the others may be gone, and the store with them."""
        self._is_abandoned = True
        self._stop.set()
        self._stack_file.close()
        self._store = None
        if self._inspector is not None:
            self._inspector.close()

    def _read_from_store(self) -> range:
        """Return the ranks whose heartbeats this one reads from the store."""
        if self._ranks.rank == 0:
            return range(1, self._ranks.size)
        return range(1 if self._watchers[1:2] == [self._ranks.rank] else 0)

    # The threads -------------------------------------------------------------------------------------------

    def _talk(self) -> None:
        """Write heartbeats into the store and read others'; a store that does not answer holds this up."""
        while not self._stop.wait(self._beat_s):
            self._write(self._beat)
            for rank in self._read_from_store():
                self._look_at(rank)
            with suppress(RuntimeError):
                if (store := self._store) is not None:
                    self._look(store)
        self._write(self._next_beat(is_over=True))

    def _watch(self) -> None:
        places = [self._place(rank, int(self._facts[rank]["beat_port"])) for rank in self._watchers]
        known = [place for place in places if place is not None]
        looked_at = time.monotonic()
        while not self._stop.wait(self._beat_s):
            self._sample()
            self._beat = self._next_beat()
            self._socket.send(self._ranks.rank, self._beat, known)
            for rank, beat in self._socket.receive(self._facts):
                if rank != self._ranks.rank:
                    self._seen.setdefault(rank, _Seen()).take(beat)
            slept_s, looked_at = time.monotonic() - looked_at, time.monotonic()
            if slept_s > 2 * self._beat_s:
                continue  # it was stopped itself: what it knows of the others is old
            if self._seen and (self._is_armed or self._mark()):
                self._tell_silent_ranks()
                looked_at = time.monotonic()
        self._socket.send(self._ranks.rank, self._next_beat(is_over=True), known)
        if self._is_abandoned:
            self._socket.close()

    def _next_beat(self, *, is_over: bool = False) -> dict[str, Any]:
        with self._lock:
            self._number += 1
            beat = self._own_beat() | {"number": self._number, "is_over": is_over}
        return beat | ({"witness": self._inspector.port} if self._inspector is not None else {})

    def _write(self, beat: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the store went away with rank 0: its launcher says why
            if (store := self._store) is not None and beat:
                store.set(f"beat/{self._ranks.rank}", json.dumps(beat))

    def _place(self, rank: int, port: int) -> tuple[str, int] | None:
        return place_of(self._facts, self._ranks.rank, rank, port) if rank != self._ranks.rank else None

    def _own_beat(self) -> dict[str, Any]:
        age_s = self._age_s()
        beat: dict[str, Any] = {"step": self.step, "mark": self._mark()}
        beat["waits_s"] = round(self._waits_s(), 1)
        beat["waits_in"] = self._waits_in() if beat["waits_s"] else ""
        beat["step_s"] = round(self._longest_step_s, 1)
        if age_s > 2 * self._beat_s:
            beat["stack"] = describe(main_frames())
        return beat

    def _age_s(self) -> float:
        """Return the time since this rank last got on: a step, or a collective that came back."""
        return time.monotonic() - max(self._stepped_at, self._traffic.ended_at, self._flown_at)

    def _mark(self) -> int:
        """Return a number that grows with every collective that came back."""
        return self._traffic.ended + sum(flight.completed for flight in self._flights)

    def _sample(self) -> None:
        """Note in which collective the main thread is; the same frame at the next look is the same call."""
        frame = collective_of(main_frames())
        if frame is None or frame is not self._collective:
            self._collective, self._collective_since = frame, time.monotonic()
        for index, look in enumerate(self._recorders):
            before, now = self._flights[index], look()
            if now.completed != before.completed:
                self._flown_at = time.monotonic()
            if now.begun_ns != before.begun_ns:  # by this clock: the recorder's can be set
                self._flight_since[index] = time.monotonic()
            self._flights[index] = now

    def _waits_s(self) -> float:
        """Return how long this rank has been in one and the same collective; a short while is none."""
        since = []
        if self._traffic.waits():
            since.append(self._traffic.changed_at)
        if self._collective is not None:
            since.append(self._collective_since)
        since += [
            began_at
            for flight, began_at in zip(self._flights, self._flight_since, strict=True)
            if flight.begun_ns is not None
        ]
        waits_s = time.monotonic() - min(since) if since else 0.0
        return waits_s if waits_s > self._waits_after_s else 0.0

    def _waits_in(self) -> str:
        """Return the name of the first collective under way, ``""`` unknown."""
        flown = next((one.name for one in self._flights if one.begun_ns is not None), "")
        return self._traffic.oldest() or flown

    def _look_at(self, rank: int) -> None:
        """Read a rank's last heartbeat; one that cannot be read grows old."""
        key = f"beat/{rank}"
        with suppress(RuntimeError):
            if (store := self._store) is not None and store.check([key]):
                self._seen[rank].take(json.loads(store.get(key)))

    def _tell_silent_ranks(self) -> None:
        beats = [self._beat_of_own(), *(seen.beat(rank) for rank, seen in self._seen.items())]
        mute = {beat.rank for beat in beats if is_mute(beat, self._silent_after_s)}
        may_speak = speaks(self._ranks.rank, self._watchers, beats, self._silent_after_s)
        self._looks = {rank: look for rank, look in self._looks.items() if rank in mute}
        if may_speak and (unseen := sorted(mute - self._looks.keys())):
            self._looks |= self._look_from_outside(unseen)
        found = silent_ranks(
            [replace(beat, is_halted=self._is_halted(beat.rank)) for beat in beats], self._silent_after_s
        )
        if (new := self._notices.news(found)) and may_speak:
            self._notices.told(new)
            self._tell(new)
        steps = {beat.rank: beat.step for beat in beats}
        for rank in self._notices.over(found, steps):
            _note(f"rank {rank} on {self._node(rank)} goes on at step {steps[rank]}")
            _record(format_record("going-on", rank=rank, node=self._node(rank), step=steps[rank]))

    def _beat_of_own(self) -> Heartbeat:
        own, now = self._own_beat(), time.monotonic()
        return Heartbeat(
            *(self._ranks.rank, self.step, now - self._stepped_at if self.step else self._age_s()),
            *(self._age_s(), 0.0),
            waits_s=float(own["waits_s"]),
            step_s=self._longest_step_s,
            stack=str(own.get("stack", "")),
            waits_in=str(own["waits_in"]),
        )

    def _is_halted(self, rank: int) -> bool:
        return is_halted(self._looks.get(rank, ("", ""))[0])

    def _node(self, rank: int) -> str:
        return str(self._facts[rank]["node"])

    def _tell(self, silences: list[Silence]) -> None:
        """Name ranks; those that are mute are looked at from outside, all at once."""
        looks = self._look_from_outside([one.rank for one in silences if one.kind == "stale"])
        for silence in silences:
            node = self._node(silence.rank)
            state, stack = looks.get(silence.rank, ("", silence.stack))
            line = silence_line(replace(silence, stack=stack), node, state=state, counts=self._is_armed)
            _note(line)
            record = format_record(
                "silence",
                rank=silence.rank,
                node=node,
                step=silence.step,
                for_s=round(silence.for_s, 1),
                waiting=silence.waiting,
                step_s=round(silence.step_s, 1) or None,
                state=state or None,
                stack=stack or None,
            )
            _record(record)

    def _look_from_outside(self, ranks: list[int]) -> dict[int, ProcessState]:
        """Return state and stack of mute ranks, as their nodes know them."""
        mine = self._node(self._ranks.rank)
        looks = {rank: look_at(self._facts[rank]) for rank in ranks if self._node(rank) == mine}
        others = [rank for rank in ranks if rank not in looks]
        witnesses = {
            self._node(rank): (rank, seen.witness) for rank, seen in self._seen.items() if seen.witness
        }
        questions = []
        for rank in others:
            starter, port = witnesses.get(self._node(rank), (rank, 0))
            if (place := self._place(starter, port)) is not None:
                questions.append((place, str(self._facts[starter]["beat_key"]), rank, self._facts[rank]))
        return looks | dict.fromkeys(others, (UNKNOWN, "")) | ask(questions)


class _Seen:
    """The last heartbeat of another rank, with the times at which it changed on this rank's clock."""

    def __init__(self) -> None:
        self.step = 0
        self._last: dict[str, Any] = {}
        self._beat_at = self._step_at = self._got_on_at = time.monotonic()

    @property
    def witness(self) -> int:
        """Port of the inspector that the rank has started, 0 for none."""
        return int(self._last.get("witness", 0))

    def take(self, beat: dict[str, Any]) -> None:
        """Take a heartbeat; one from the store may be older than what a datagram brought."""
        if int(beat["number"]) <= int(self._last.get("number", 0)):
            return
        now = self._beat_at = time.monotonic()
        if beat["step"] != self.step:
            self._step_at = now
        if (beat["step"], beat["mark"]) != (self.step, self._last.get("mark")):
            self._got_on_at = now
        self._last, self.step = beat, int(beat["step"])

    def beat(self, rank: int) -> Heartbeat:
        """Return what the rank last said; who waited then is taken to wait still."""
        now = time.monotonic()
        waits_s = float(self._last.get("waits_s", 0.0))
        return Heartbeat(
            *(rank, self.step, now - (self._step_at if self.step else self._got_on_at)),
            *(now - self._got_on_at, now - self._beat_at),
            waits_s=waits_s + now - self._beat_at if waits_s else 0.0,
            step_s=float(self._last.get("step_s", 0.0)),
            stack=str(self._last.get("stack", "")),
            is_over=bool(self._last.get("is_over")),
            waits_in=str(self._last.get("waits_in", "")),
        )


def _own_connection(store: Any) -> Any:
    """Return a connection to the store that no other thread's wait can block."""
    with suppress(AttributeError, RuntimeError, NotImplementedError):
        store = store.clone()
        store.set_timeout(timedelta(seconds=STORE_TIMEOUT_S))
    return store


def _note(text: str) -> None:
    sys.stderr.write(f"gangline.train: {text}\n")
    sys.stderr.flush()


def _record(line: str) -> None:
    """Write a record past the buffer of the program's own lines, whole; a reader that left is no concern."""
    with suppress(OSError):
        os.write(1, line.encode())
