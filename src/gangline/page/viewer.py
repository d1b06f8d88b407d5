"""One open page: what it wants to see, and what it was told already."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gangline.errors import GanglineError
from gangline.page.rows import Window, part

if TYPE_CHECKING:
    from aiohttp import web

    from gangline.page.feeds import LogFeed
    from gangline.page.sessions import PageSession

Obj = dict[str, Any]

tick_s: Final = 2.0
overlay_timeout_s: Final = 5.0
"""So often at least a page is looked at anew: what no watch tells (events, use of GPUs) is read then."""
pause_s: Final = 0.05
LINES_AT_ONCE: Final = 2_000
OVERLAYS_MAX: Final = 4

_encode = msgspec.json.Encoder().encode


class LogWish(msgspec.Struct, frozen=True):
    """Which log."""

    key: str
    pod: str


class Wishes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a page changes of what it wants; what it leaves out stays."""

    jobs: Window | None | msgspec.UnsetType = msgspec.UNSET
    job: str | None | msgspec.UnsetType = msgspec.UNSET
    log: LogWish | None | msgspec.UnsetType = msgspec.UNSET
    nodes: bool | msgspec.UnsetType = msgspec.UNSET
    runs: bool | msgspec.UnsetType = msgspec.UNSET
    overlays: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class Viewer:
    """Sends one page what it wants, each part when it has changed."""

    def __init__(self, session: PageSession, socket: web.WebSocketResponse) -> None:
        self._scene, self._socket = session.workspace.scene, socket
        self._whose = {"folder": session.surroundings.folder, "user": session.workspace.user}
        self._wants: dict[str, Any] = {}
        self._told: dict[str, bytes] = {}
        self._woken = asyncio.Event()
        self._log: tuple[LogWish, str, LogFeed] | None = None
        self._log_seen = 0
        self._curves: tuple[str, str, LogFeed] | None = None
        self._sight: set[str] = set()

    def want(self, text: str) -> None:
        """Take a wish of the page; one that cannot be read is passed over."""
        try:
            wishes = msgspec.json.decode(text, type=Wishes)
        except msgspec.MsgspecError:
            return
        for name in Wishes.__struct_fields__:
            value = getattr(wishes, name)
            if value is not msgspec.UNSET:
                self._wants[name] = value
                self._told.pop(name, None)
                if name in ("job", "overlays"):
                    self._told = {
                        part: mark for part, mark in self._told.items() if not part.startswith("series")
                    }
        self._woken.set()

    async def run(self) -> None:
        """Send until the page is gone."""
        known = asyncio.create_task(self._scene.live.wait_synced())
        try:
            while not known.done():  # a cluster that does not answer is told of, too
                await self._send("cluster", self._scene.cluster() | self._whose)
                await asyncio.wait([known], timeout=tick_s)
        finally:
            known.cancel()
        with self._scene.listening() as changed:
            while not self._socket.closed:
                await self._tell()
                with suppress(TimeoutError):  # changes are put together for a while, wishes answered at once
                    async with asyncio.timeout(pause_s):
                        await self._woken.wait()
                waits = [asyncio.create_task(changed.wait()), asyncio.create_task(self._woken.wait())]
                await asyncio.wait(waits, timeout=tick_s, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
                changed.clear()
                self._woken.clear()

    async def close(self) -> None:
        """Tell the page to go."""
        await self._socket.close()

    def leave(self) -> None:
        """Give back what was held for the page."""
        self._hold_log(None)
        self._hold_curves(None)
        self._see(set())

    async def _tell(self) -> None:
        await self._send("cluster", self._scene.cluster() | self._whose)
        await self._tell_jobs()
        await self._tell_job()
        await self._tell_log()
        if self._wants.get("nodes"):
            try:
                await self._send("nodes", await self._scene.nodes())
            except GanglineError as error:
                await self._send("error", {"title": "nodes", "message": error.message})
        if self._wants.get("runs") and "runs" not in self._told:
            await self._send("runs", {"rows": await self._scene.runs()})

    async def _tell_jobs(self) -> None:
        window = self._wants.get("jobs")
        if window is None:
            if not self._wants.get("job"):
                self._see(set())
            return
        found = self._scene.live.jobs.chosen(window)
        first, rows = part(found, window)
        self._see({row.key for row in rows})
        value = {"total": len(found), "all": len(self._scene.live.jobs), "first": first, "rows": rows}
        await self._send("jobs", value)

    async def _tell_job(self) -> None:
        key = self._wants.get("job")
        if not key:
            self._hold_curves(None)
            return
        self._see({key})
        value = await self._scene.detail(key)
        await self._send("job", {name: part for name, part in value.items() if not name.startswith("_")})
        self._hold_curves(key)
        if self._curves is not None:
            curves = self._curves[2].curves
            mark = str(curves.version).encode()  # the columns are made only where there are more
            if self._told.get("series") != mark:
                await self._send("series", {"key": key, "columns": curves.columns()})
                self._told["series"] = mark
        for run in (self._wants.get("overlays") or ())[:OVERLAYS_MAX]:
            name = f"series/{run}"
            if name not in self._told:
                columns: Any = {}
                with suppress(TimeoutError):  # the page's other parts wait for it
                    async with asyncio.timeout(overlay_timeout_s):
                        columns = await self._scene.run_series(run)
                await self._send(name, {"key": f"run/{run}", "columns": columns})

    async def _tell_log(self) -> None:
        wish = self._wants.get("log")
        self._hold_log(wish)
        if self._log is None or wish is None:
            return
        feed = self._log[2]
        while True:
            is_first = "log" not in self._told
            if is_first or feed.lines.total < self._log_seen:
                self._log_seen, is_first = 0, True
            dropped, lines = feed.lines.since(self._log_seen)
            lines, rest = lines[:LINES_AT_ONCE], lines[LINES_AT_ONCE:]
            state = (feed.lines.total, feed.ended, feed.error)
            if not lines and not is_first and self._told.get("log") == repr(state).encode():
                return
            value = {
                "key": wish.key,
                "pod": wish.pod,
                "reset": is_first,
                "dropped": dropped,
                "lines": [{"rank": line.rank, "text": line.text} for line in lines],
                "ended": feed.ended and not rest,
                "error": feed.error,
            }
            self._log_seen += dropped + len(lines)
            self._told["log"] = repr(state).encode()
            await self._socket.send_str(_encode({"log": value}).decode())
            if not rest:
                return

    async def _send(self, name: str, value: Any) -> None:
        """Send a part where it differs from what was told last."""
        data = _encode(value)
        if self._told.get(name) == data:
            return
        self._told[name] = data
        title = name.partition("/")[0]
        await self._socket.send_str(f'{{"{title}":{data.decode()}}}')

    # What is held for the page.

    def _hold_log(self, wish: LogWish | None) -> None:
        pod = self._scene.pod_of(wish.key, wish.pod) if wish else None
        uid = pod["metadata"]["uid"] if pod else ""
        if self._log is not None and (wish != self._log[0] or (uid and uid != self._log[1])):
            self._scene.feeds.close(self._log[1])
            self._log = None
        if self._log is None and wish is not None and pod is not None:
            self._log = (wish, uid, self._scene.feeds.open(pod))
            self._log_seen = 0
            self._told.pop("log", None)

    def _hold_curves(self, key: str | None) -> None:
        pod = self._scene.chief_of(key) if key else None
        uid = pod["metadata"]["uid"] if pod else ""
        if self._curves is not None and (key != self._curves[0] or (uid and uid != self._curves[1])):
            self._scene.feeds.close(self._curves[1])
            self._curves = None
            self._told.pop("series", None)
        if self._curves is None and key and pod is not None:
            self._curves = (key, uid, self._scene.feeds.open(pod))

    def _see(self, keys: set[str]) -> None:
        for key in self._sight - keys:
            self._scene.in_sight[key] -= 1
            if self._scene.in_sight[key] <= 0:
                del self._scene.in_sight[key]
        for key in keys - self._sight:
            self._scene.in_sight[key] += 1
        self._sight = keys
