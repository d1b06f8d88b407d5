"""What is left when the watch of PodGroups is ended at any time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any, cast

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
