"""What is left when the watch of PodGroups is ended at any time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any, cast

import pytest
from fake_client import FakeClient

from gangline.scheduler import group_watch as module
from gangline.scheduler.group_watch import GroupWatch
from gangline.scheduler.state import SchedulerState


async def test_a_wait_for_the_first_lists_that_is_ended_leaves_nothing_to_complain_about() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    nobody = cast(Any, None)
    watch = GroupWatch(nobody, SchedulerState(("ours",)), lambda: None, ("ours",), nobody, asyncio.Event())

    waiting = asyncio.create_task(watch.ready())
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    del waiting
    gc.collect()

    assert complaints == []


class AskedClient(FakeClient):
    """One whose server does not answer, and which counts how often it is asked for JobSets."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away, self.asked = True, 0

    async def send(self, method: str, path: str, **more: Any) -> bytes:
        self.asked += "jobset" in path
        return await super().send(method, path, **more)


async def test_a_server_that_does_not_answer_is_asked_again_soon_for_a_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ASK_AGAIN_S", 0.0)
    client, nobody = AskedClient(), cast(Any, None)
    watch = GroupWatch(client, SchedulerState(("ours",)), lambda: None, ("ours",), nobody, asyncio.Event())
    running, ready = asyncio.create_task(watch.run()), asyncio.create_task(watch.ready())

    async with asyncio.timeout(module.READY_TIMEOUT_S / 2):
        while client.asked < 3:
            await asyncio.sleep(0)
        client.is_away = False
        await ready
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
