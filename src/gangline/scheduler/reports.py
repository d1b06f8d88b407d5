"""Says of pods why they wait: the newest reason of each, and only while nothing is being bound.

A reason can change with every pod that comes and is told to each pod of a gang; written in the order in which
they were found, and before the bindings, the reasons of a large gang would keep its pods waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice

from gangline.api.core import Pod, find_condition
from gangline.placement import Unschedulable
from gangline.scheduler.kept import SeenPod

TOGETHER_MAX = 48
"""Reasons that are written at once; before the next ones bindings get their turn."""

GIVE_WAY_MAX_S = 10.0
"""While pods are bound without a pause, reasons are held back for so long."""

AGAIN_S, AGAIN_MAX_S = 1.0, 60.0
"""A reason that the server has not taken is written again after so long: at first, and at most."""


class Reports:
    """The reasons that are still to be written, and those that pods carry.

    Args:
        write: writes one; returns whether the server has taken it.
        names: scheduler names of the pods that are placed here.
        quiet: set while nothing is being bound.
    """

    def __init__(
        self, write: Callable[[Unschedulable], Awaitable[bool]], names: tuple[str, ...], quiet: asyncio.Event
    ) -> None:
        self._write = write
        self._names = names
        self._quiet = quiet
        self._said: dict[str, str] = {}
        self._due: dict[str, Unschedulable] = {}
        self._pause_s: dict[str, float] = {}
        self._is_due = asyncio.Event()

    def take_pod(self, old: SeenPod | None, new: Pod | None) -> None:
        """Take a pod as it is now; what it carries from an earlier scheduler needs no second word."""
        if new is None or new.spec.node_name or new.is_finished:
            if isinstance(old, Pod):  # else it was forgotten before
                self.forget(old.metadata.uid)
            return
        condition = find_condition(new.status.conditions, "PodScheduled")
        if condition is not None and new.spec.scheduler_name in self._names:
            self._said.setdefault(new.metadata.uid, condition.message)

    def forget(self, uid: str) -> None:
        """Say nothing more of a pod, which waits no longer."""
        self._said.pop(uid, None)
        self._due.pop(uid, None)
        self._pause_s.pop(uid, None)

    def tell(self, entry: Unschedulable) -> None:
        """Have a reason written soon, in place of an older one, unless the pod carries it already."""
        if self._said.get(entry.uid) == entry.message:
            return
        self._said[entry.uid] = entry.message
        self._due[entry.uid] = entry
        self._is_due.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            give_way_until_s = asyncio.get_running_loop().time() + GIVE_WAY_MAX_S
            while self._due:
                try:
                    async with asyncio.timeout_at(give_way_until_s):
                        await self._quiet.wait()
                except TimeoutError:
                    pass
                some = [self._due.pop(uid) for uid in list(islice(self._due, TOGETHER_MAX))]
                await asyncio.gather(*map(self._tell_one, some))

    async def _tell_one(self, entry: Unschedulable) -> None:
        pause_s = self._pause_s.pop(entry.uid, AGAIN_S)
        if not await self._write(entry) and self._is_newest(entry):
            self._pause_s[entry.uid] = min(2 * pause_s, AGAIN_MAX_S)
            asyncio.get_running_loop().call_later(pause_s, self._tell_again, entry)

    def _tell_again(self, entry: Unschedulable) -> None:
        """Have a reason written once more; there may be no pass for long that would say it again."""
        if self._is_newest(entry):
            self._due.setdefault(entry.uid, entry)
            self._is_due.set()

    def _is_newest(self, entry: Unschedulable) -> bool:
        return self._said.get(entry.uid) == entry.message
