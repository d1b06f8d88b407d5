"""Who was let in: sessions by their keys, and what each of them sees of the cluster."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from gangline.kube.client import Client
    from gangline.page.actions import Actions
    from gangline.page.scene import Scene

SESSIONS_MAX: Final = 64

T = TypeVar("T")


class Surroundings(msgspec.Struct, frozen=True):
    """Where the terminal stood that opened the page: programs are started there.

    Attributes:
        folder: its working directory.
        environment: its variables.
    """

    folder: str = ""
    environment: Mapping[str, str] = {}


@dataclass(eq=False, slots=True)
class Workspace:
    """A cluster with the rights of one user.

    Attributes:
        client: asks with these rights.
        scene: what is shown.
        actions: what can be done.
        user: by the server's name; empty where nobody else could sign in.
        viewers: how many pages are open.
        shells: how many terminals are open.
        over: set when these rights have ended; what is open then is closed.
    """

    client: Client
    scene: Scene
    actions: Actions
    user: str = ""
    viewers: int = field(default=0, init=False)
    shells: int = field(default=0, init=False)
    over: asyncio.Event = field(default_factory=asyncio.Event, init=False)


@dataclass(frozen=True, eq=False, slots=True)
class PageSession:
    """One browser that was let in."""

    workspace: Workspace
    surroundings: Surroundings


class SessionKeys(Generic[T]):
    """What the sessions of one page server stand for, by their keys; in memory alone.

    Args:
        lifetime_s: after which a browser must be let in anew.
    """

    def __init__(self, lifetime_s: float) -> None:
        self._lifetime_s = lifetime_s
        self._found: dict[str, tuple[float, T]] = {}

    def add(self, value: T) -> str:
        """Return the key of a new session; the oldest one makes room."""
        moment = time.monotonic()
        self._found = {key: one for key, one in self._found.items() if one[0] > moment}
        while len(self._found) >= SESSIONS_MAX:
            del self._found[next(iter(self._found))]
        key = secrets.token_urlsafe(32)
        self._found[key] = moment + self._lifetime_s, value
        return key

    def find(self, key: str) -> T | None:
        """Return what a session stands for that is not over."""
        until_s, value = self._found.get(key, (0.0, None))
        return value if until_s > time.monotonic() else None

    def has(self, value: T) -> bool:
        """Whether there is a session of this value."""
        return any(one == value for _, one in self._found.values())

    def drop(self, is_over: Callable[[str, T], bool]) -> None:
        """Let out every browser of whose key and value that is true."""
        self._found = {key: one for key, one in self._found.items() if not is_over(key, one[1])}
