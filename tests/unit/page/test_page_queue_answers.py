"""The queue shows what the explanation says of each gang, and nothing of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from gangline.errors import ClusterError
from gangline.page.queue_answers import QueueAnswers


def row(gang: str, key: str = "") -> dict[str, Any]:
    return {"gang": gang, "key": key}


async def test_rows_stand_by_the_places_that_are_answered_and_unknown_ones_last() -> None:
    asked = []

    async def explain(name: str, namespace: str) -> dict[str, Any]:
        asked.append((name, namespace))
        if name == "refused":
            raise ClusterError("no right")
        place = {"mpijob/late": 2, "early": 1}[name]
        return {"position": place, "queue": "q", "mayStart": "2026-01-01T00:00:00Z" if place == 1 else None}

    answers = QueueAnswers(explain)
    rows = [row("team/late", "mpijob/team/late"), row("team/refused"), row("team/early")]
    first = answers.onto(rows)
    async with asyncio.timeout(5):
        while not answers.onto(rows)[0]["place"]:
            await asyncio.sleep(0)
    found = answers.onto(rows)
    await answers.stop()

    assert [one["place"] for one in first] == [0, 0, 0]
    assert asked == [("mpijob/late", "team"), ("refused", "team"), ("early", "team")]
    assert [(one["gang"], one["place"], one["mayStart"]) for one in found] == [
        ("team/early", 1, "2026-01-01T00:00:00Z"),
        ("team/late", 2, ""),
        ("team/refused", 0, ""),
    ]
