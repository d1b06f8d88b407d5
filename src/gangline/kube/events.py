"""Tells users what happened to an object, as v1 Events. Best effort: it never raises and never waits.

The first time a thing happens an Event is created, each further time its count is raised (the behaviour of
client-go's recorder, by which ``kubectl describe`` prints ``x5 over 3m``).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gangline import clock
from gangline.api.core import ObjectMeta
from gangline.api.resources import EVENTS
from gangline.kube.errors import AlreadyExists, ApiError, KubeconfigError, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

message_bytes_max = 1024
"""Limit of the API for an event's message; longer ones are cut."""

queue_events_max = 1000
"""Events that wait to be sent, unless the recorder's owner says otherwise; more are dropped and counted."""

together_max = 8
"""Events of several objects that are sent at once, unless the recorder's owner says otherwise."""

give_way_max_s = 30.0
"""An event gives way to other writes for so long at most."""

known_events_max = 4096
"""Events of which the count can be raised."""

known_event_age_max_s = 600.0
"""After this a repeated event becomes a new one."""

retry_delays_s = (0.2, 1.0, 5.0, 10.0, 20.0)
"""Pauses before an event is sent again to a server that is away; further events wait meanwhile."""

close_timeout_s = 2.0
"""How long ``close`` waits for events that are still to be sent."""

_object_name_chars_max = 230


class Regarding(NamedTuple):
    """What an event is about."""

    api_version: str
    kind: str
    meta: ObjectMeta


class _Happening(NamedTuple):
    """What makes two events the same."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str


class _Known(msgspec.Struct):
    name: str
    count: int
    first_seen_s: float


class Recorder:
    """Sends events for one component; construct and use it in a running event loop.

    Args:
        client: sends them.
        component: shown as the source, for example ``gangline-operator``.
        gate: events wait while it is not set, for ``give_way_max_s`` at most: other writes matter more.
        queue_max: events that wait to be sent; more are dropped.
        together: events of several objects that are sent at once. One of 32 costs 0.6 of the processor time
            of one of 8, for more of their answers are read together.
    """

    def __init__(
        self,
        client: ObjectClient,
        component: str,
        *,
        gate: asyncio.Event | None = None,
        queue_max: int = queue_events_max,
        together: int = together_max,
    ) -> None:
        self._client = client
        self._component = component
        self._gate = gate
        self._together = together
        self._queue: asyncio.Queue[tuple[_Happening, str, float]] = asyncio.Queue(queue_max)
        self._known: OrderedDict[_Happening, _Known] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.dropped_count = 0

    def event(
        self,
        regarding: dict[str, Any] | Regarding | tuple[str, str, ObjectMeta],
        type_: str,
        reason: str,
        message: str,
    ) -> None:
        """Have an event sent, soon, and after those about the same object; returns at once.

        Args:
            regarding: the object in wire form, or its API version, kind and metadata.
            type_: ``Normal`` or ``Warning``.
            reason: one PascalCase word.
            message: for people; cut at 1,024 bytes.
        """
        happening = _happening(regarding, type_, reason, cut_message(message))
        try:
            self._queue.put_nowait((happening, clock.format_time(clock.now()), time.monotonic()))
        except asyncio.QueueFull:
            self.dropped_count += 1
            return
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_all(), name="events")

    async def flush(self) -> None:
        """Wait until what was recorded so far is sent or given up."""
        await self._queue.join()

    async def close(self) -> None:
        """Send what waits, for ``close_timeout_s`` at most, and stop."""
        self._closing.set()
        try:
            async with asyncio.timeout(close_timeout_s):
                await self.flush()
        except TimeoutError:
            self.dropped_count += self._queue.qsize()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _send_all(self) -> None:
        while True:
            some = [await self._queue.get()]
            await self._wait_for_others(some[0][2] + give_way_max_s)
            while len(some) < self._together and not self._queue.empty():
                some.append(self._queue.get_nowait())
            by_object: dict[tuple[str, str], list[tuple[_Happening, str]]] = {}
            for happening, moment, _ in some:
                by_object.setdefault((happening.namespace, happening.name), []).append((happening, moment))
            await asyncio.gather(*map(self._send_in_order, by_object.values()))

    async def _send_in_order(self, some: Iterable[tuple[_Happening, str]]) -> None:
        for happening, moment in some:
            try:
                await self._send_patiently(happening, moment)
            except (ApiError, KubeconfigError) as error:
                self._log_failure(happening, error)
            except Exception as error:  # noqa: BLE001  # a defect here must not stop further events
                self._log_failure(happening, error)
            finally:
                self._queue.task_done()

    async def _wait_for_others(self, until_s: float) -> None:
        left_s = until_s - time.monotonic()
        if self._gate is None or self._gate.is_set() or left_s <= 0:
            return
        waits = [asyncio.create_task(event.wait()) for event in (self._gate, self._closing)]
        try:
            await asyncio.wait(waits, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _log_failure(self, happening: _Happening, error: Exception) -> None:
        import structlog  # late: 30 ms that the command line does not pay

        self.dropped_count += 1
        # A namespace that is going away refuses events; nobody will miss them.
        structlog.get_logger().debug(
            "event not sent", reason=happening.reason, regarding=happening.name, error=str(error)
        )

    async def _send_patiently(self, happening: _Happening, moment: str) -> None:
        """Send one event, under one name however often it is tried: the answer may be all that was lost."""
        name = f"{happening.name[:_object_name_chars_max]}.{time.time_ns():x}"
        for delay_s in retry_delays_s:
            try:
                await self._send(happening, moment, name)
                return
            except ApiError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(delay_s)
        await self._send(happening, moment, name)

    async def _send(self, happening: _Happening, moment: str, name: str) -> None:
        known = self._known.get(happening)
        if known and time.monotonic() - known.first_seen_s < known_event_age_max_s:
            try:
                await self._repeat(happening, known, moment)
                return
            except NotFound:
                pass  # the server has forgotten it
        await self._create(happening, moment, name)

    async def _repeat(self, happening: _Happening, known: _Known, moment: str) -> None:
        patch = {"count": known.count + 1, "lastTimestamp": moment}
        await self._client.patch(EVENTS, known.name, patch, happening.namespace or "default")
        known.count += 1
        self._known.move_to_end(happening)

    async def _create(self, happening: _Happening, moment: str, name: str) -> None:
        try:
            await self._client.create(EVENTS, self._render(happening, name, moment))
        except AlreadyExists:
            pass  # the connection broke after the server had taken it
        self._known[happening] = _Known(name, 1, time.monotonic())
        self._known.move_to_end(happening)
        while len(self._known) > known_events_max:
            self._known.popitem(last=False)

    def _render(self, happening: _Happening, name: str, moment: str) -> dict[str, Any]:
        involved = {
            "apiVersion": happening.api_version,
            "kind": happening.kind,
            "namespace": happening.namespace,
            "name": happening.name,
            "uid": happening.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": happening.namespace or "default"},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "type": happening.type,
            "reason": happening.reason,
            "message": happening.message,
            "count": 1,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }


def cut_message(message: str) -> str:
    """Return the message in at most ``message_bytes_max`` bytes of UTF-8; a cut one ends with ``...``."""
    data = message.encode("utf-8", "replace")
    if len(data) <= message_bytes_max:
        return message
    return data[: message_bytes_max - 3].decode("utf-8", "ignore") + "..."


def _happening(
    regarding: dict[str, Any] | tuple[str, str, ObjectMeta], type_: str, reason: str, message: str
) -> _Happening:
    if isinstance(regarding, dict):
        metadata = regarding.get("metadata") or {}
        meta = ObjectMeta(
            name=metadata.get("name", ""),
            namespace=metadata.get("namespace", ""),
            uid=metadata.get("uid", ""),
        )
        regarding = (regarding.get("apiVersion", ""), regarding.get("kind", ""), meta)
    api_version, kind, meta = regarding
    return _Happening(api_version, kind, meta.namespace, meta.name, meta.uid, type_, reason, message)
