"""Which ranks keep the others waiting: a pure rule over what every rank last said of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SILENT_AFTER_S = 25.0
"""No rank steps for this long before anybody is named; the name is out two beats later, within 40 s."""
BEATS = 5
"""Beats within that time. A rank that says nothing for three is stopped, hung inside C code, or gone."""
STEPS_OF_PATIENCE = 3.0
"""Where a step takes long, this many of the longest steps are waited instead, as far as time allows."""
PATIENCE_MAX_S = 45.0
"""So that the name is out within a minute; only where one step takes most of that is waited longer."""
LONG_STEPS_OF_PATIENCE = 1.5
WATCHERS_MAX = 16
"""Ranks that every rank sends its beats to."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a rank last said, with ages on the reader's own clock.

    Attributes:
        rank: which one.
        step: its last step that is done.
        step_age_s: since its step last changed.
        beat_age_s: since it last said anything.
        waits: it has been in one and the same collective for a while, so others keep it waiting.
        step_s: its longest step so far.
        stack: where its main thread is, innermost first; ``""`` unknown.
        is_over: it has ended properly.
    """

    rank: int
    step: int
    step_age_s: float
    beat_age_s: float
    waits: bool
    step_s: float = 0.0
    stack: str = ""
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Silence:
    """A rank that keeps others waiting.

    Attributes:
        rank: which one.
        step: the last step that it has done.
        for_s: since then.
        kind: ``stale`` says nothing at all; ``busy`` does something else than its peers, who wait for it;
            ``mixed`` when all wait, each in another collective or for somebody unknown.
        waiting: how many ranks wait.
        stack: where it is.
    """

    rank: int
    step: int
    for_s: float
    kind: str
    waiting: int
    stack: str


def watchers(nodes: Sequence[str]) -> list[int]:
    """Return the ranks that watch over all: rank 0, the first ranks of other nodes, then the next ones.

    Args:
        nodes: where every rank runs.
    """
    firsts = sorted({node: rank for rank, node in reversed([*enumerate(nodes)])}.values())
    more = [rank for rank in range(min(len(nodes), WATCHERS_MAX)) if rank not in firsts]
    return [*firsts, *more][:WATCHERS_MAX]


def is_mute(beat: Beat, silent_after_s: float = SILENT_AFTER_S) -> bool:
    """Return whether a rank says nothing: its process is stopped, hung inside C code, or gone."""
    return not beat.is_over and beat.beat_age_s > 3 * silent_after_s / BEATS


def patience_s(beats: Sequence[Beat], silent_after_s: float = SILENT_AFTER_S) -> float:
    """Return how long no rank may step before it counts as silence, while all of them still speak."""
    step_s = max((beat.step_s for beat in beats), default=0.0)
    most = max(PATIENCE_MAX_S, LONG_STEPS_OF_PATIENCE * step_s)
    return max(silent_after_s, min(STEPS_OF_PATIENCE * step_s, most))


def silent_ranks(beats: Sequence[Beat], silent_after_s: float = SILENT_AFTER_S) -> list[Silence]:
    """Return the ranks that keep others waiting, empty while training goes on or all compute.

    A phase in which nobody steps and nobody waits (compiling, evaluation on all ranks) is no silence.
    """
    active = [beat for beat in beats if not beat.is_over]
    stale = [beat for beat in active if is_mute(beat, silent_after_s)]
    speaking = [beat for beat in active if beat not in stale]
    # Who says nothing is not computing: a long step explains nothing then.
    limit_s = silent_after_s if stale else patience_s(active, silent_after_s)
    if min((beat.step_age_s for beat in speaking), default=0.0) <= limit_s:
        return []
    waiting = [beat for beat in speaking if beat.waits]
    if stale:
        # Who waits for a rank has done no more steps than it: its last beat may be older than its last step.
        least = min((beat.step for beat in waiting), default=0)
        return [_named(replace(beat, step=max(beat.step, least)), "stale", len(waiting)) for beat in stale]
    busy = [beat for beat in active if not beat.waits]
    if busy and waiting:
        lowest = min(beat.step for beat in busy)
        return [_named(beat, "busy", len(waiting)) for beat in busy if beat.step == lowest]
    if waiting:
        lowest = min(beat.step for beat in waiting)
        return [_named(beat, "mixed", len(waiting)) for beat in waiting if beat.step == lowest]
    return []


def _named(beat: Beat, kind: str, waiting: int) -> Silence:
    return Silence(beat.rank, beat.step, beat.step_age_s, kind, waiting, beat.stack)


def silence_line(silence: Silence, node: str, *, state: str = "") -> str:
    """Return the line for people.

    Args:
        silence: who and since when.
        node: where the rank runs.
        state: what the node knows of its process, for example that it is stopped.
    """
    head = f"rank {silence.rank} on {node} silent since step {silence.step} ({silence.for_s:.0f} s)"
    others = f"{silence.waiting} other rank{'s wait' if silence.waiting != 1 else ' waits'} for it"
    if silence.kind == "mixed":
        others = "it waits as all ranks do: they are not in the same collective, or one that ended is missed"
    parts = [head, others]
    if state:
        parts.append(state)
    if silence.stack:
        parts.append(f"its stack: {silence.stack}")
    return "; ".join(parts)
