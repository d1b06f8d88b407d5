"""Which ranks keep the others waiting: a pure rule over what every rank last said of itself.

Every rank says all the time, whatever its step does, whether it computes or waits for its peers and since
when. So who keeps whom waiting is known at once; what needs patience is telling a long step from one that
will never end. Three cases, from the surest on:

- *halted*: says nothing, and its node says that the process is stopped or gone. Named as soon as others wait.
- *mute*: says nothing, for a reason that is not known or inside C code. Named once nobody steps for a while.
- *busy*: speaks, and is not where the others wait. A step that takes longer than the steps before it explains
  that for a while: `patience_s`, and never longer than 45 s of the others' waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

SILENT_AFTER_S = 25.0
"""No rank steps for this long before anybody is named who speaks; the name is out two heartbeats later."""
BEATS = 5
"""Beats within that time. A rank that says nothing for three is mute."""
WAITING_BEATS = 3
"""Others wait for so many heartbeats before a busy rank is named, however long it has taken until then."""
STEPS_OF_PATIENCE = 3.0
"""Where a step takes long, this many of the longest steps may pass instead, as far as time allows."""
PATIENCE_MAX = 1.8
"""Times SILENT_AFTER_S, 45 s: of steps that are shorter, and of the waiting for any step."""
LONG_STEPS_OF_PATIENCE = 1.25
"""A step may always take so much longer than the longest before it, as long as others wait within bounds."""
WATCHERS_MAX = 16
"""Ranks that every rank sends its heartbeats to."""
WORSE = 1.5
"""A rank that was late before is named again when others wait so much longer than they did then."""
NEAR_STEPS = 3
"""Steps for which lateness is remembered: one that is late in every step is named once."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a rank last said, with ages on the reader's own clock.

    Attributes:
        rank: which one.
        step: its last step that is done.
        step_age_s: since its step last changed.
        idle_s: since it last got on: a step, or gradients that came back.
        beat_age_s: since it last said anything.
        waits_s: how long it has been in one and the same collective, 0 when it is in none.
        step_s: its longest step so far.
        stack: where its main thread is, innermost first; ``""`` unknown.
        is_over: it has ended properly.
        is_halted: its node says that its process is stopped or gone.
        waits_in: name of the collective that it waits in, ``""`` unknown.
    """

    rank: int
    step: int
    step_age_s: float
    idle_s: float
    beat_age_s: float
    waits_s: float
    step_s: float = 0.0
    stack: str = ""
    is_over: bool = False
    is_halted: bool = False
    waits_in: str = ""


@dataclass(frozen=True, slots=True)
class Silence:
    """A rank that keeps others waiting.

    Attributes:
        rank: which one.
        step: the last step that it has done.
        for_s: since then.
        kind: ``stale`` says nothing at all; ``busy`` does something else than its peers, who wait for it;
            ``mixed`` when all wait, each in another collective or for somebody unknown; ``stopped`` where its
            process is seen to be (`gangline.train.waiting`).
        waiting: how many ranks wait.
        stack: where it is.
        waited_s: how long the first of those has waited.
        step_s: the longest step of all ranks until now, 0 unknown.
        waits_in: the collective in which the others wait, or it as they do; ``""`` unknown.
    """

    rank: int
    step: int
    for_s: float
    kind: str
    waiting: int
    stack: str
    waited_s: float = 0.0
    step_s: float = 0.0
    waits_in: str = ""


def watchers(nodes: Sequence[str]) -> list[int]:
    """Return the ranks that watch over all: rank 0, the first ranks of other nodes, then the next ones.

    Args:
        nodes: where every rank runs.
    """
    firsts = sorted({node: rank for rank, node in reversed([*enumerate(nodes)])}.values())
    more = [rank for rank in range(min(len(nodes), WATCHERS_MAX)) if rank not in firsts]
    return [*firsts, *more][:WATCHERS_MAX]


def is_mute(beat: Heartbeat, silent_after_s: float = SILENT_AFTER_S) -> bool:
    """Return whether a rank says nothing: its process is stopped, hung inside C code, or gone."""
    return not beat.is_over and beat.beat_age_s > 3 * silent_after_s / BEATS


def speaks(rank: int, watching: Sequence[int], beats: Sequence[Heartbeat], silent_after_s: float) -> bool:
    """Return whether a watcher is the first that is there to speak: those before are mute, or have ended."""
    absent = {beat.rank for beat in beats if beat.is_over or is_mute(beat, silent_after_s)}
    return absent.issuperset(watching[: watching.index(rank)])


def patience_s(step_s: float, silent_after_s: float = SILENT_AFTER_S) -> float:
    """Return how long no rank may get on before it counts as silence, while steps take this long."""
    most = max(PATIENCE_MAX * silent_after_s, LONG_STEPS_OF_PATIENCE * step_s)
    return max(silent_after_s, min(STEPS_OF_PATIENCE * step_s, most))


def silent_ranks(beats: Sequence[Heartbeat], silent_after_s: float = SILENT_AFTER_S) -> list[Silence]:
    """Return the ranks that keep others waiting, empty while training goes on or all compute.

    A phase in which nobody steps and nobody waits (compiling, evaluation on all ranks) is no silence.
    """
    active = [beat for beat in beats if not beat.is_over]
    mute = [beat for beat in active if is_mute(beat, silent_after_s)]
    waiting = [beat for beat in active if beat.waits_s and beat not in mute]
    idle_s = min((beat.idle_s for beat in active if beat not in mute), default=0.0)
    waited_s = max((beat.waits_s for beat in waiting), default=0.0)
    step_s = max((beat.step_s for beat in active), default=0.0)

    def named(beat: Heartbeat, kind: str) -> Silence:
        waits_in = beat.waits_in or next((one.waits_in for one in waiting if one.waits_in), "")
        return Silence(
            *(beat.rank, beat.step, beat.step_age_s, kind, len(waiting), beat.stack),
            *(waited_s, step_s, waits_in),
        )

    patience = patience_s(step_s, silent_after_s)
    chosen: list[Heartbeat] = []
    if waiting or idle_s > silent_after_s:
        chosen = [beat for beat in mute if beat.is_halted]
    # Who says nothing is not known to compute: where others wait, a long step explains nothing then.
    if idle_s > (silent_after_s if waiting else patience):
        chosen = mute
    if chosen:
        # Who waits for a rank has done no more steps than it: its heartbeat may be older than its last step.
        least = min((beat.step for beat in waiting), default=0)
        return [named(replace(beat, step=max(beat.step, least)), "stale") for beat in chosen]
    is_waited_for = waited_s >= WAITING_BEATS * silent_after_s / BEATS
    if not (is_waited_for and idle_s > patience) and waited_s < PATIENCE_MAX * silent_after_s:
        return []
    busy = [beat for beat in active if not beat.waits_s]
    # Whoever gets on comes at last: ranks with uneven work wait for the others at its end.
    blamed = [beat for beat in busy or waiting if beat.idle_s > silent_after_s]
    kind = "busy" if busy else "mixed"
    lowest = min((beat.step for beat in blamed), default=0)
    return [named(beat, kind) for beat in blamed if beat.step == lowest]


class Notices:
    """What was said of silent ranks: each is named once, and again when it is silent at a later step.

    A rank that lets the others wait in every step, as on a slower node, is named for it once.
    """

    def __init__(self) -> None:
        self._told: dict[int, Silence] = {}
        self._late: dict[int, Silence] = {}
        self._was_late: dict[int, Silence] = {}

    def news(self, found: Sequence[Silence]) -> list[Silence]:
        """Return those of the ranks found silent now that are to be named."""
        new = [one for one in found if self._is_news(one)]
        self._was_late |= {rank: one for rank, one in self._late.items() if self._has_ended(one, found)}
        self._late = {one.rank: one for one in found}
        return new

    def told(self, silences: Iterable[Silence]) -> None:
        """Note that these were named."""
        self._told |= {one.rank: one for one in silences}

    def over(self, found: Sequence[Silence], steps: Mapping[int, int]) -> list[int]:
        """Return the ranks that were named and step again; each once.

        Args:
            found: the ranks that are silent now.
            steps: the last step of every rank.
        """
        still = {one.rank for one in found}
        over = [rank for rank, one in self._told.items() if rank not in still and steps[rank] > one.step]
        for rank in over:
            del self._told[rank]
        return over

    def _has_ended(self, silence: Silence, found: Sequence[Silence]) -> bool:
        return not any(one.rank == silence.rank and one.step == silence.step for one in found)

    def _is_news(self, silence: Silence) -> bool:
        told, before = self._told.get(silence.rank), self._was_late.get(silence.rank)
        if told is not None and told.step >= silence.step:
            return False
        if before is None or silence.kind in ("stale", "stopped") or silence.step > before.step + NEAR_STEPS:
            return True
        return silence.waited_s > WORSE * before.waited_s


def silence_line(silence: Silence, node: str, *, state: str = "", counts: bool = True) -> str:
    """Return the line for people.

    Args:
        silence: who and since when.
        node: where the rank runs.
        state: what the node knows of its process, for example that it is stopped.
        counts: the ranks tell their steps.
    """
    head = f"rank {silence.rank} on {node} silent since step {silence.step} ({silence.for_s:.0f} s)"
    if not counts:
        head = f"rank {silence.rank} on {node} has not got on for {silence.for_s:.0f} s"
    elif silence.kind == "busy":
        head = (
            f"rank {silence.rank} on {node} is still in step {silence.step + 1} after {silence.for_s:.0f} s"
        )
        head += f" (steps took up to {_seconds(silence.step_s)} until now)" if silence.step_s else ""
    others = f"{silence.waiting} other rank{'s wait' if silence.waiting != 1 else ' waits'} for it"
    place = f" in {silence.waits_in}" if silence.waits_in else ""
    others += place
    if silence.kind == "mixed":
        others = f"it waits{place} as all ranks do: they are not in the same collective, "
        others += "or one that ended is missed"
    elif not silence.waiting:
        others = "no other rank waits for it yet"
    parts = [head, others]
    if state:
        parts.append(state)
    if silence.stack:
        parts.append(f"its stack: {silence.stack}")
    return "; ".join(parts)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
