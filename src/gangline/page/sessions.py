"""Who was let in: sessions by their keys, and what each of them sees of the cluster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from gangline.kube.client import Client
    from gangline.page.actions import Actions
    from gangline.page.scene import Scene

SESSIONS_MAX: Final = 64


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
    """

    client: Client
    scene: Scene
    actions: Actions
    user: str = ""
    viewers: int = field(default=0, init=False)
    shells: int = field(default=0, init=False)


@dataclass(frozen=True, eq=False, slots=True)
class PageSession:
    """One browser that was let in."""

    workspace: Workspace
    surroundings: Surroundings
    until_s: float


class SessionKeys:
    """The sessions of one page server.

    Args:
        lifetime_s: after which a browser must be let in anew.
    """

    def __init__(self, lifetime_s: float) -> None:
        self._lifetime_s = lifetime_s
        self._found: dict[str, PageSession] = {}

    def add(self, workspace: Workspace, surroundings: Surroundings) -> str:
        """Return the key of a new session; the oldest one makes room."""
        moment = time.monotonic()
        self._found = {key: one for key, one in self._found.items() if one.until_s > moment}
        while len(self._found) >= SESSIONS_MAX:
            del self._found[next(iter(self._found))]
        key = secrets.token_urlsafe(32)
        self._found[key] = PageSession(workspace, surroundings, moment + self._lifetime_s)
        return key

    def find(self, key: str) -> PageSession | None:
        """Return a session that is not over."""
        found = self._found.get(key)
        return found if found is not None and found.until_s > time.monotonic() else None

    def drop(self, key: str) -> None:
        """Let a browser out."""
        self._found.pop(key, None)
