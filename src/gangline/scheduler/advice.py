"""Adds to the reason of a waiting gang what would help, where that is cheap to find out.

What would help is looked for once for each new reason, so that a message changes no more often than its
reason does. ``gangline explain`` finds it out anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gangline.placement import Decisions, Gang, NodeTable, Wait
from gangline.placement.allocations import Allocations
from gangline.placement.explanation import in_one_line, nearest_fixes
from gangline.placement.why import with_simulated
from gangline.workloads.requests import GPU

NEW_MAX = 1
"""Gangs that are looked at in one pass, the first that wait."""

TRIALS = 4
HOLDERS_MAX = 2_000
"""Where more pods hold room, messages go without it: looking takes 10 µs for each of them."""


class Advice:
    """What was found out for the gangs that wait now."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}

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
        fresh, known = 0, {}
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
                known[wait.gang] = wait.message, in_one_line(fixes)
        self._known = known
        return _with_messages(decisions, {key: fix for key, (_, fix) in known.items() if fix})


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


def _with_messages(decisions: Decisions, fixes: dict[str, str]) -> Decisions:
    if not fixes:
        return decisions
    waits: list[Wait] = []
    texts: dict[str, str] = {}
    for wait in decisions.waits:
        if wait.reason != "NoRoom" or wait.gang not in fixes:
            waits.append(wait)
            continue
        longer = f"{wait.message}; {fixes[wait.gang]}"
        texts[f"gang {wait.gang} waits: {wait.message}"] = f"gang {wait.gang} waits: {longer}"
        waits.append(msgspec.structs.replace(wait, message=longer))
    unschedulable = tuple(
        msgspec.structs.replace(entry, message=texts.get(entry.message, entry.message))
        for entry in decisions.unschedulable
    )
    return msgspec.structs.replace(decisions, waits=tuple(waits), unschedulable=unschedulable)
