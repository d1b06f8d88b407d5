"""A disk that is full or read-only: writes are refused with a reason, reads go on, until there is room.

Stand-in for the disk: SQLite's own bound of pages, and its own switch for reading only, give the same errors.
"""

import asyncio
from typing import Any

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
FULL = ("PRAGMA max_page_count=1", "PRAGMA max_page_count=1000000")
READ_ONLY = ("PRAGMA query_only=ON", "PRAGMA query_only=OFF")


@pytest.mark.parametrize(
    ("switch", "code", "reason"),
    [(FULL, 507, "InsufficientStorage"), (READ_ONLY, 503, "ServiceUnavailable")],
    ids=["full", "read-only"],
)
async def test_writes_are_refused_until_there_is_room(
    api: Any, switch: tuple[str, str], code: int, reason: str
) -> None:
    on, off = switch
    await api.create(MAPS, {"metadata": {"name": "before"}})
    connection = api.server.context.store._writer._connection
    connection.execute(on)

    bodies = [{"metadata": {"name": f"m{n}"}, "data": {"k": "v" * 50_000}} for n in range(40)]
    answers = await asyncio.gather(*(api.request("POST", MAPS, body) for body in bodies))
    refused = [(status, answer) for status, answer in answers if status != 201]

    assert refused
    assert {(status, answer["reason"]) for status, answer in refused} <= {
        (code, reason),
        (503, "ServiceUnavailable"),
    }
    assert (code, reason) in {(status, answer["reason"]) for status, answer in refused}
    assert all(answer["details"]["retryAfterSeconds"] == 5 for _, answer in refused)
    acknowledged = {answer["metadata"]["name"] for status, answer in answers if status == 201}
    names = {item["metadata"]["name"] for item in (await api.get(MAPS))["items"]}
    assert names == acknowledged | {"before"}

    connection.execute(off)
    await api.create(MAPS, {"metadata": {"name": "after"}})
    assert "after" in {item["metadata"]["name"] for item in (await api.get(MAPS))["items"]}
