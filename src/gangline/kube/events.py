"""Tells users what happened to an object, as v1 Events. Best effort: it never raises and never waits.

The first time a thing happens an Event is created, each further time its count is raised (the behaviour of
client-go's recorder, by which ``kubectl describe`` prints ``x5 over 3m``).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
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


class _Said(NamedTuple):
    happening: _Happening
    name: str
    moment: str
    queued_s: float


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
        self._queue: asyncio.Queue[_Said] = asyncio.Queue(queue_max)
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
        name = f"{happening.name[:_object_name_chars_max]}.{time.time_ns():x}"
        try:
            self._queue.put_nowait(_Said(happening, name, clock.format_time(clock.now()), time.monotonic()))
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
            await self._wait_for_others(some[0].queued_s + give_way_max_s)
            while len(some) < self._together and not self._queue.empty():
                some.append(self._queue.get_nowait())
            by_object: dict[tuple[str, str], list[_Said]] = {}
            for said in some:
                by_object.setdefault((said.happening.namespace, said.happening.name), []).append(said)
            new: list[_Said] = []
            others: list[list[_Said]] = []
            for one in by_object.values():
                if len(one) == 1 and self._repeats(one[0]) is None:
                    new += one
                else:
                    others.append(one)
            in_order = asyncio.gather(*map(self._send_in_order, others))
            left, _ = await asyncio.gather(self._create_all(new), in_order)
            await asyncio.gather(*(self._send_in_order([one]) for one in left))

    async def _create_all(self, some: Sequence[_Said]) -> Sequence[_Said]:
        """Create events of as many objects at once; return those to be sent again, with patience."""
        if not some:
            return some
        bodies = [(EVENTS.path(_namespace(one)), self._render(one)) for one in some]
        try:
            errors = await self._client.post_all(bodies)
        except Exception:  # noqa: BLE001  # whatever it is, the others go on
            return some
        left = []
        for one, error in zip(some, errors, strict=True):
            if error is not None and error.retryable:
                left.append(one)
                continue
            if error is None or isinstance(error, AlreadyExists):  # the answer of a first try may be lost
                self._note(one)
            else:
                self._log_failure(one.happening, error)
            self._queue.task_done()
        return left

    async def _send_in_order(self, some: Iterable[_Said]) -> None:
        for one in some:
            try:
                await self._send_patiently(one)
            except (ApiError, KubeconfigError) as error:
                self._log_failure(one.happening, error)
            except Exception as error:  # noqa: BLE001  # a defect here must not stop further events
                self._log_failure(one.happening, error)
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

    async def _send_patiently(self, said: _Said) -> None:
        """Send one event, under one name however often it is tried: the answer may be all that was lost."""
        for delay_s in retry_delays_s:
            try:
                await self._send(said)
                return
            except ApiError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(delay_s)
        await self._send(said)

    async def _send(self, said: _Said) -> None:
        if (known := self._repeats(said)) is not None:
            try:
                await self._repeat(said, known)
                return
            except NotFound:
                pass  # the server has forgotten it
        try:
            await self._client.create(EVENTS, self._render(said))
        except AlreadyExists:
            pass  # the connection broke after the server had taken it
        self._note(said)

    def _repeats(self, said: _Said) -> _Known | None:
        """Return the event whose count an event raises, None for a new one."""
        known = self._known.get(said.happening)
        is_recent = known is not None and time.monotonic() - known.first_seen_s < known_event_age_max_s
        return known if is_recent else None

    async def _repeat(self, said: _Said, known: _Known) -> None:
        patch = {"count": known.count + 1, "lastTimestamp": said.moment}
        await self._client.patch(EVENTS, known.name, patch, _namespace(said))
        known.count += 1
        self._known.move_to_end(said.happening)

    def _note(self, said: _Said) -> None:
        self._known[said.happening] = _Known(said.name, 1, time.monotonic())
        self._known.move_to_end(said.happening)
        while len(self._known) > known_events_max:
            self._known.popitem(last=False)

    def _render(self, said: _Said) -> dict[str, Any]:
        happening, moment = said.happening, said.moment
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
            "metadata": {"name": said.name, "namespace": _namespace(said)},
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


def _namespace(said: _Said) -> str:
    return said.happening.namespace or "default"


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
