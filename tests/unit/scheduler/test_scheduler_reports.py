"""Why pods wait, as it is written: the newest reason of each, and only while nothing is bound."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.placement import Binding, Unschedulable
from gangline.scheduler import binder as binder_module
from gangline.scheduler import reports as module
from gangline.scheduler.binder import Binder
from gangline.scheduler.reports import Reports

NAMES = ("gangline-scheduler",)


def reason(uid: str, message: str) -> Unschedulable:
    return Unschedulable(f"team/{uid}", uid, message)


def pod(uid: str, *, said: str = "", **spec: Any) -> Pod:
    conditions = [{"type": "PodScheduled", "status": "False", "message": said}] if said else []
    body = {
        "metadata": {"name": uid, "namespace": "team", "uid": uid},
        "spec": {"schedulerName": NAMES[0], **spec},
        "status": {"phase": "Pending", "conditions": conditions},
    }
    return msgspec.convert(body, Pod)


class Scene:
    """Reports that write into a list; `quiet` says whether pods are being bound."""

    def __init__(self) -> None:
        self.quiet = asyncio.Event()
        self.written: list[tuple[str, str]] = []
        self.is_taken = True
        self.reports = Reports(self._write, NAMES, self.quiet)

    async def _write(self, entry: Unschedulable) -> bool:
        self.written.append((entry.uid, entry.message))
        return self.is_taken

    async def settle(self) -> None:
        """Let what is due now be written: nothing here waits for anything else."""
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    task = asyncio.create_task(scene.reports.run())
    yield scene
    task.cancel()


async def test_of_reasons_that_change_while_pods_are_bound_the_newest_is_written_once(scene: Scene) -> None:
    for there in range(1, 1000):
        scene.reports.tell(reason("one", f"has {there} of the 1000 pods"))
    await scene.settle()
    assert scene.written == []

    scene.quiet.set()
    await scene.settle()
    assert scene.written == [("one", "has 999 of the 1000 pods")]


async def test_reasons_give_way_to_bindings_for_a_bounded_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GIVE_WAY_MAX_S", 0.0)
    scene.reports.tell(reason("one", "no room"))
    async with asyncio.timeout(10):
        while not scene.written:
            await asyncio.sleep(0)
    assert scene.written == [("one", "no room")]


async def test_bindings_get_their_turn_between_the_reasons_of_a_large_gang(scene: Scene) -> None:
    scene.quiet.set()
    for index in range(3 * module.TOGETHER_MAX):
        scene.reports.tell(reason(str(index), "no room"))
    while not scene.written:
        await asyncio.sleep(0)
    scene.quiet.clear()
    await scene.settle()
    assert len(scene.written) == module.TOGETHER_MAX


async def test_nothing_is_written_of_a_pod_that_is_given_a_node_meanwhile(scene: Scene) -> None:
    scene.reports.tell(reason("one", "no room"))
    scene.reports.tell(reason("two", "no room"))
    scene.reports.tell(reason("three", "no room"))
    scene.reports.forget("one")
    scene.reports.take_pod(pod("two"), pod("two", nodeName="a"))
    scene.reports.take_pod(pod("three"), None)
    scene.quiet.set()
    await scene.settle()
    assert scene.written == []


async def test_what_a_pod_carries_already_is_not_written_also_after_a_restart(scene: Scene) -> None:
    scene.quiet.set()
    scene.reports.take_pod(None, pod("one", said="no room"))
    scene.reports.tell(reason("one", "no room"))
    await scene.settle()
    assert scene.written == []

    scene.reports.tell(reason("one", "no ports"))
    await scene.settle()
    scene.reports.tell(reason("one", "no ports"))
    await scene.settle()
    assert scene.written == [("one", "no ports")]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_what_the_server_has_not_taken_is_written_again_without_another_pass(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    scene.quiet.set()
    scene.is_taken = False
    scene.reports.tell(reason("one", "no room"))
    await until(lambda: len(scene.written) == 3)
    scene.is_taken = True
    await until(lambda: len(scene.written) == 4)
    await scene.settle()
    assert scene.written == [("one", "no room")] * 4


async def test_a_reason_that_fails_is_not_written_with_every_pass(scene: Scene) -> None:
    scene.quiet.set()
    scene.is_taken = False
    for _ in range(3):
        scene.reports.tell(reason("one", "no room"))
        await scene.settle()
    assert scene.written == [("one", "no room")]


async def test_a_reason_that_failed_is_not_written_in_place_of_a_newer_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    scene.quiet.set()
    scene.is_taken = False
    scene.reports.tell(reason("one", "no room"))
    scene.reports.tell(reason("two", "no room"))
    await until(lambda: len(scene.written) == 2)
    scene.is_taken = True
    scene.reports.tell(reason("one", "no ports"))
    scene.reports.forget("two")
    await until(lambda: len(scene.written) == 3)
    await scene.settle()
    assert scene.written[2:] == [("one", "no ports")]


async def test_other_writes_wait_a_moment_longer_than_a_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        async def post_all(self, requests: list[Any]) -> list[None]:
            return [None] * len(requests)

    class Events:
        def event(self, *_: Any) -> None:
            pass

    quiet = asyncio.Event()
    binder = Binder(Server(), Events(), quiet)  # type: ignore[arg-type]
    assert quiet.is_set()

    await binder.bind_all([Binding("team/one", "one", "node")], {})
    assert not quiet.is_set()
    await binder.bind_all([Binding("team/two", "two", "node")], {})
    monkeypatch.setattr(binder_module, "CALM_S", 0.0)
    await binder.bind_all([Binding("team/three", "three", "node")], {})
    async with asyncio.timeout(10):
        await quiet.wait()
