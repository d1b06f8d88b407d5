"""What the explanation says of the gangs that wait: place in the queue, and when each may start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from gangline.errors import GanglineError

Obj = dict[str, Any]

ASKED_MAX: Final = 20
"""Gangs that are explained: each costs a look at the whole cluster."""
asked_every_s: Final = 10.0
_TIMES: Final = ("mayStart", "mayStartAbout", "mayStartByNineOfTen")


class QueueAnswers:
    """The answers of the last reading; they are read while somebody looks at the queue.

    Args:
        explain: returns what `gangline explain -o json` prints, by kind/name and namespace.
    """

    def __init__(self, explain: Callable[[str, str], Awaitable[Obj]]) -> None:
        self._explain = explain
        self._answers: dict[str, Obj] = {}
        self._task: asyncio.Task[None] | None = None
        self._read_s = float("-inf")

    def onto(self, rows: Sequence[Obj]) -> list[Obj]:
        """Return the rows with what was answered, by place; read the answers anew where they are old."""
        is_old = time.monotonic() - self._read_s > asked_every_s
        if rows and is_old and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._read(rows[:ASKED_MAX]), name="explain the queue")
        nothing = answered({})
        found = [row | self._answers.get(row["gang"], nothing) for row in rows]
        return sorted(found, key=lambda row: (not row["place"], row["queue"], row["place"]))

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, rows: Sequence[Obj]) -> None:
        for row in rows:
            namespace, _, name = row["gang"].partition("/")
            kind, _, rest = row["key"].partition("/")
            word = f"{kind}/{rest.partition('/')[2]}" if kind else name
            try:
                self._answers[row["gang"]] = answered(await self._explain(word, namespace))
            except GanglineError:  # it may be gone, or not everything may be seen
                self._answers.pop(row["gang"], None)
        self._answers = {
            row["gang"]: self._answers[row["gang"]] for row in rows if row["gang"] in self._answers
        }
        self._read_s = time.monotonic()


def answered(value: Obj) -> Obj:
    """Return of an explanation what the queue shows; place 0 is none."""
    times = {name: value.get(name) or "" for name in _TIMES}
    return {"queue": value.get("queue") or "", "place": value.get("position") or 0, **times}
