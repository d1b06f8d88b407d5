"""Adds to the reason of a waiting gang what would help, where that is cheap to find out.

What would help is looked for once for each new reason, so that a message changes no more often than its
reason does. ``gangline explain`` finds it out anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gangline.placement import Decisions, Gang, NodeTable, Unschedulable, Wait
from gangline.placement.allocations import Allocations
from gangline.placement.explanation import in_one_line, nearest_fixes
from gangline.placement.waiting.why import with_simulated
from gangline.workloads.pending import NEVER_FITS
from gangline.workloads.requests import GPU

Help = tuple[str, bool]
"""What would help, in one line, and whether nothing does."""

NEW_MAX = 1
"""Gangs that are looked at in one pass, the first that wait."""

TRIALS = 4
HOLDERS_MAX = 2_000
"""Where more pods hold room, messages go without it: looking takes 10 µs for each of them."""


class Advice:
    """What was found out for the gangs that wait now."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Help]] = {}

    def added(
        self, decisions: Decisions, gangs: Sequence[Gang], table: NodeTable, allocations: Allocations
    ) -> Decisions:
        """Return the decisions with longer messages.

        Args:
            decisions: of a pass.
            gangs: that it was about.
            table: what the pass left.
            allocations: with what it placed.
        """
        decisions = _of_simulated(decisions, table)
        waits = [wait for wait in decisions.waits if wait.reason == "NoRoom"]
        if not waits or len(allocations) > HOLDERS_MAX:
            self._known.clear()
            return decisions
        by_key = {gang.key: gang for gang in gangs if gang.pods[0].gang}
        fresh, known = 0, dict[str, tuple[str, Help]]()
        for wait in waits:
            gang, before = by_key.get(wait.gang), self._known.get(wait.gang)
            if gang is None:
                continue
            if before is not None and before[0] == wait.message:
                known[wait.gang] = before
            elif fresh < NEW_MAX:
                fresh += 1
                core = gang.first(gang.needed) if gang.needed else gang
                fixes = nearest_fixes(table, allocations, core, trials=TRIALS)
                is_never = any(fix.kind == "never" for fix in fixes)
                known[wait.gang] = wait.message, (in_one_line(fixes), is_never)
        self._known = known
        return _with_help(decisions, {key: found for key, (_, found) in known.items() if found[0]})


def _of_simulated(decisions: Decisions, table: NodeTable) -> Decisions:
    """Return the decisions with messages that say of GPUs that they are simulated, where they are."""
    mentions = next((wait.message for wait in decisions.waits if GPU in wait.message), "")
    if with_simulated(mentions, table.views) == mentions:
        return decisions
    waits = tuple(
        msgspec.structs.replace(wait, message=with_simulated(wait.message, table.views))
        for wait in decisions.waits
    )
    unschedulable = tuple(
        msgspec.structs.replace(entry, message=with_simulated(entry.message, table.views))
        for entry in decisions.unschedulable
    )
    return msgspec.structs.replace(decisions, waits=waits, unschedulable=unschedulable)


def _with_help(decisions: Decisions, help_for: dict[str, Help]) -> Decisions:
    if not help_for:
        return decisions
    waits: list[Wait] = []
    longer: dict[str, Wait] = {}
    for wait in decisions.waits:
        if wait.reason == "NoRoom" and wait.gang in help_for:
            text, is_never = help_for[wait.gang]
            wait = msgspec.structs.replace(wait, message=f"{wait.message}; {text}")
            longer[wait.gang] = msgspec.structs.replace(wait, reason=NEVER_FITS) if is_never else wait
        waits.append(wait)
    unschedulable = tuple(
        Unschedulable.with_gang(entry.pod, entry.uid, longer[entry.gang]) if entry.gang in longer else entry
        for entry in decisions.unschedulable
    )
    return msgspec.structs.replace(decisions, waits=tuple(waits), unschedulable=unschedulable)
