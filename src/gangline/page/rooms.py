"""What each token sees of the cluster: opened when it is first shown, ended when nobody looks any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from gangline.api.resources import SELF_SUBJECT_REVIEWS
from gangline.errors import GanglineError, UserError
from gangline.kube.errors import ApiError, Forbidden, NotFound, Unauthorized
from gangline.page.sessions import Workspace

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

ROOMS_MAX: Final = 64
"""Of tokens at once: each keeps the jobs and pods that it may see, 2 kB a pod."""
check_s: Final = 60.0
"""So often the cluster is asked whether it still takes a token: it does not end what runs by itself."""
idle_end_s: Final = 900.0
"""A laptop may sleep for a while."""


class Visitor(msgspec.Struct, frozen=True):
    """Whose rights, and which namespace is shown where they reach no further.

    Attributes:
        token: of the cluster; shown to nobody, nor in logs.
        namespace: empty for that of a service account, else `default`.
    """

    token: str = ""
    namespace: str = ""

    def __repr__(self) -> str:
        return f"Visitor(namespace={self.namespace!r})"


OpenWorkspace = Callable[[Visitor], AbstractAsyncContextManager[Workspace]]


class _Room:
    def __init__(self) -> None:
        self.opened: asyncio.Future[Workspace] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None


class Rooms:
    """The workspaces of the tokens that are in use.

    Args:
        open_workspace: opens one with the rights of a token; raises Unauthorized for one that is not taken.

    Attributes:
        on_end: told of each visitor that has ended.
    """

    def __init__(self, open_workspace: OpenWorkspace) -> None:
        self._open = open_workspace
        self._rooms: dict[Visitor, _Room] = {}
        self.on_end: Callable[[Visitor], None] = lambda _: None

    async def enter(self, visitor: Visitor) -> Workspace:
        """Return what a token sees.

        Raises:
            Unauthorized: the cluster does not take it.
            GanglineError: the cluster does not answer, or too many look already.
        """
        room = self._rooms.get(visitor)
        if room is None:
            if len(self._rooms) >= ROOMS_MAX:
                raise UserError(f"{ROOMS_MAX} users look at this page already; try again later")
            room = self._rooms[visitor] = _Room()
            room.task = asyncio.create_task(self._keep(visitor, room), name="page room")
        return await asyncio.shield(room.opened)

    def end(self, visitor: Visitor) -> None:
        """End what a token sees, and whatever is open of it."""
        room = self._rooms.pop(visitor, None)
        if room is not None and room.task is not None:
            room.task.cancel()

    async def stop(self) -> None:
        """End all."""
        tasks = [room.task for room in self._rooms.values() if room.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, visitor: Visitor, room: _Room) -> None:
        try:
            async with self._open(visitor) as workspace:
                room.opened.set_result(workspace)
                try:
                    await _until_over(workspace)
                finally:
                    workspace.over.set()
        except GanglineError as error:
            if not room.opened.done():
                room.opened.set_exception(error)
        except Exception:  # noqa: BLE001 - the others' rooms stay
            structlog.get_logger().exception("a page shows nothing any more")
        finally:
            if not room.opened.done():
                room.opened.set_exception(UserError("the page ends, or the user has signed out"))
            if self._rooms.get(visitor) is room:
                del self._rooms[visitor]
            self.on_end(visitor)


async def _until_over(workspace: Workspace) -> None:
    """Follow the cluster until nobody has looked for a while.

    Raises:
        Unauthorized: the cluster does not take the token any more.
    """
    following = asyncio.create_task(workspace.scene.run(), name="scene")
    seen_s = time.monotonic()
    try:
        while time.monotonic() - seen_s < idle_end_s:
            done, _ = await asyncio.wait({following}, timeout=check_s)
            if done:
                following.result()
            if workspace.viewers or workspace.shells:
                seen_s = time.monotonic()
            try:
                await user_of(workspace.client)
            except Unauthorized:
                raise
            except ApiError:  # a server that is away for a while says nothing of tokens
                pass
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def user_of(client: ObjectClient) -> str:
    """Return the name by which the cluster knows a client; `a user` where it does not tell.

    Raises:
        Unauthorized: it does not take the client's token.
    """
    review = {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": SELF_SUBJECT_REVIEWS.kind}
    try:
        found = await client.create(SELF_SUBJECT_REVIEWS, review)
    except (Forbidden, NotFound):  # servers before 1.28
        return "a user"
    return str(((found.get("status") or {}).get("userInfo") or {}).get("username") or "a user")
