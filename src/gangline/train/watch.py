"""Watches over the ranks: every rank says how it is, rank 0 names who keeps the others waiting.

A thread in every rank writes a small beat into the job's store. Rank 0's reads all of them; rank 1's looks
after rank 0 in the same way. A second thread judges what was read, for a store whose rank is stopped answers
nobody and holds the first one up. What is found goes to standard error as a line for people, and to standard
output as a record. The rule is in `gangline.train.silence`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Any

from gangline.train.environment import Ranks
from gangline.train.gradients import Traffic
from gangline.train.records import format_record
from gangline.train.silence import BEATS, SILENT_AFTER_S, Beat, Silence, silence_line, silent_ranks
from gangline.train.stacks import (
    StackFile,
    collective_of,
    describe,
    main_frames,
    process_state,
    stack_of,
)

STORE_TIMEOUT_S = 10.0


class Watch:
    """One rank's part of the watch.

    Args:
        ranks: this rank's place.
        facts: what every rank said of itself at the start.
        store: that all ranks share.
        traffic: of gradient buckets.
        stack_file: of this process.
        silent_after_s: how long no rank steps before one is named.
    """

    def __init__(
        self,
        ranks: Ranks,
        facts: list[dict[str, Any]],
        store: Any,
        traffic: Traffic,
        stack_file: StackFile,
        *,
        silent_after_s: float = SILENT_AFTER_S,
    ) -> None:
        self.step = 0
        self._ranks, self._facts, self._traffic = ranks, facts, traffic
        self._stack_file = stack_file
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
        self._number = 0
        self._stop = threading.Event()
        self._talker = threading.Thread(target=self._talk, name="gangline-beats", daemon=True)
        self._judge = threading.Thread(target=self._watch, name="gangline-watch", daemon=True)
        self._seen: dict[int, _Seen] = {}
        self._told: dict[int, Silence] = {}

    def start(self) -> None:
        """Begin; a single rank has nobody to watch over."""
        if self._store is None:
            return
        self._seen = {rank: _Seen() for rank in self._watched()}
        self._talker.start()
        self._judge.start()

    def expect_steps(self, done: int) -> None:
        """From now on steps are told, of which `done` are done; without this only gradients count."""
        self.step, self._stepped_at, self._is_armed = done, time.monotonic(), True

    def stepped(self, step: int) -> None:
        """Note that this rank has done a step."""
        now = time.monotonic()
        if self.step:
            self._longest_step_s = max(self._longest_step_s, now - self._stepped_at)
        self.step, self._stepped_at = step, now

    def close(self) -> None:
        """Say that this rank has ended properly, and end the thread."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._stack_file.close()
        for thread in (self._judge, self._talker):
            if thread.is_alive():
                thread.join(STORE_TIMEOUT_S)
        self._store = None

    def _watched(self) -> range:
        return {0: range(1, self._ranks.size), 1: range(1)}.get(self._ranks.rank, range(0))

    # The threads -------------------------------------------------------------------------------------------

    def _talk(self) -> None:
        """Say how this rank is and read how others are; may be held up by a store that does not answer."""
        while not self._stop.wait(self._beat_s):
            with suppress(RuntimeError):  # the store went away with rank 0: its launcher says why
                self._say()
            for rank in self._watched():
                self._look_at(rank)
        with suppress(RuntimeError):
            self._say(is_over=True)

    def _watch(self) -> None:
        while not self._stop.wait(self._beat_s):
            self._sample()
            if self._seen and (self._is_armed or self._traffic.ended):
                self._tell_silent_ranks()

    def _say(self, *, is_over: bool = False) -> None:
        self._number += 1
        beat = self._own_beat() | {"number": self._number, "is_over": is_over}
        if (store := self._store) is not None:
            store.set(f"beat/{self._ranks.rank}", json.dumps(beat))

    def _own_beat(self) -> dict[str, Any]:
        age_s = self._age_s()
        beat: dict[str, Any] = {"step": self.step, "mark": self._traffic.ended, "waits": self._waits()}
        beat["step_s"] = round(self._longest_step_s, 1)
        if age_s > 2 * self._beat_s:
            beat["stack"] = describe(main_frames())
        return beat

    def _age_s(self) -> float:
        """Return the time since this rank last got on: a step, or a bucket of gradients that came back."""
        return time.monotonic() - max(self._stepped_at, self._traffic.ended_at)

    def _sample(self) -> None:
        """Note in which collective the main thread is; the same frame at the next look is the same call."""
        frame = collective_of(main_frames())
        if frame is None or frame is not self._collective:
            self._collective, self._collective_since = frame, time.monotonic()

    def _waits(self) -> bool:
        now = time.monotonic()
        in_traffic = self._traffic.waits() and now - self._traffic.changed_at > self._waits_after_s
        return in_traffic or (
            self._collective is not None and now - self._collective_since > self._waits_after_s
        )

    def _look_at(self, rank: int) -> None:
        """Read a rank's last beat; one that cannot be read grows old."""
        key = f"beat/{rank}"
        with suppress(RuntimeError):
            if (store := self._store) is not None and store.check([key]):
                self._seen[rank].take(json.loads(store.get(key)))

    def _tell_silent_ranks(self) -> None:
        own, age_s = self._own_beat(), self._age_s()
        beats = [
            Beat(
                *(self._ranks.rank, self.step, age_s, 0.0, bool(own["waits"])),
                step_s=self._longest_step_s,
                stack=str(own.get("stack", "")),
            ),
            *(seen.beat(rank) for rank, seen in self._seen.items()),
        ]
        found = silent_ranks(beats, self._silent_after_s)
        if self._ranks.rank != 0:  # the deputy speaks of rank 0 only, and only when it is mute itself
            found = [one for one in found if one.kind == "stale"]
        for silence in found:
            told = self._told.get(silence.rank)
            if told is None or told.step < silence.step:
                self._told[silence.rank] = silence
                self._tell(silence)
        for rank, silence in list(self._told.items()):
            step = self.step if rank == self._ranks.rank else self._seen[rank].step
            if step > silence.step and not any(one.rank == rank for one in found):
                del self._told[rank]
                _note(f"rank {rank} on {self._node(rank)} goes on at step {step}")
                _record(format_record("going-on", rank=rank, node=self._node(rank), step=step))

    def _node(self, rank: int) -> str:
        return str(self._facts[rank]["node"])

    def _tell(self, silence: Silence) -> None:
        node, state, stack = self._node(silence.rank), "", silence.stack
        if silence.kind == "stale":
            state, stack = self._ask(silence.rank)
        silence = Silence(silence.rank, silence.step, silence.for_s, silence.kind, silence.waiting, stack)
        _note(silence_line(silence, node, state=state))
        record = format_record(
            "silence",
            rank=silence.rank,
            node=node,
            step=silence.step,
            for_s=round(silence.for_s, 1),
            waiting=silence.waiting,
            state=state or None,
            stack=stack or None,
        )
        _record(record)

    def _ask(self, rank: int) -> tuple[str, str]:
        """Return the state and the stack of a mute rank, as far as this node knows them."""
        fact = self._facts[rank]
        if fact["node"] != self._facts[self._ranks.rank]["node"]:
            return "its process says nothing", ""
        from gangline.train.meeting import process_name

        pid = int(fact["pid"])
        if process_name(pid) != fact["process"]:
            return "its process has ended", ""
        if state := process_state(pid):
            return state, ""
        return "its interpreter is locked inside C code", stack_of(pid, str(fact["stack_file"]))


class _Seen:
    """The last beat of another rank, with the times at which it changed on this rank's clock."""

    def __init__(self) -> None:
        self.step = 0
        self._last: dict[str, Any] = {}
        self._beat_at = self._step_at = time.monotonic()

    def take(self, beat: dict[str, Any]) -> None:
        now = time.monotonic()
        if beat["number"] != self._last.get("number"):
            self._beat_at = now
        if (beat["step"], beat["mark"]) != (self.step, self._last.get("mark")):
            self._step_at = now
        self._last, self.step = beat, int(beat["step"])

    def beat(self, rank: int) -> Beat:
        now = time.monotonic()
        return Beat(
            rank,
            self.step,
            now - self._step_at,
            now - self._beat_at,
            bool(self._last.get("waits")),
            float(self._last.get("step_s", 0.0)),
            str(self._last.get("stack", "")),
            bool(self._last.get("is_over")),
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
