"""What the operator has just written or deleted and its caches do not know yet.

Without it a reconcile that comes between a write and its watch event would write again, and one that comes
after a deletion would take what is gone for there: a job that is resumed while a watch lags would not get its
Services again. An entry counts only while it is newer than the cache, and is forgotten once that knows.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

look_again_s = 10.0
"""A job of which the caches lack something is looked at this often: of what was deleted again before a list
they tell nothing."""

recent_max_s = 300.0
"""No cache that works is further behind; a server that lost its last writes counts them anew from below."""


class _Entry(NamedTuple):
    value: Any
    version: str
    written_s: float

    def is_ahead_of(self, version: str) -> bool:
        is_old = time.monotonic() - self.written_s > recent_max_s
        return not is_old and (not version or is_newer(self.version, version))


class Recent:
    """Objects by owner, kind and name; for one event loop."""

    def __init__(self) -> None:
        self._entries: dict[Any, dict[tuple[str, str], _Entry]] = {}
        self._gone: dict[Any, dict[tuple[str, str], str]] = {}  # uids

    def remember(self, owner: Any, kind: str, value: Any) -> None:
        """Keep what the server answered to a write."""
        meta = value.metadata
        entry = _Entry(value, meta.resource_version, time.monotonic())
        self._entries.setdefault(owner, {})[kind, meta.name] = entry

    def remember_gone(self, owner: Any, kind: str, name: str, uid: str) -> None:
        """Keep that the server has an object no more."""
        self._gone.setdefault(owner, {})[kind, name] = uid
        entry = self._entries.get(owner, {}).get((kind, name))
        if entry is not None and entry.value.metadata.uid == uid:
            self._drop(owner, kind, name)

    def is_gone(self, owner: Any, kind: str, name: str, uid: str) -> bool:
        """Whether that object, by its uid, is known to be there no more."""
        return owner in self._gone and self._gone[owner].get((kind, name)) == uid

    def caught_up(self, owner: Any, kind: str, name: str, version: str) -> None:
        """Forget an entry that the cache has now, or something newer; an empty version is a deletion."""
        if not version and owner in self._gone:
            self._gone[owner].pop((kind, name), None)
        entry = self._entries.get(owner, {}).get((kind, name))
        if entry is not None and not (version and is_newer(entry.version, version)):
            self._drop(owner, kind, name)

    def _drop(self, owner: Any, kind: str, name: str) -> None:
        del self._entries[owner][kind, name]
        if not self._entries[owner]:
            del self._entries[owner]

    def forget(self, owner: Any) -> None:
        """Drop everything about an owner."""
        self._entries.pop(owner, None)
        self._gone.pop(owner, None)

    def ahead_of(self, version: str, owner: Any, kind: str) -> list[Any]:
        """Return the objects of an owner and a kind that are ahead of a cache, and drop those that are not.

        Args:
            version: up to which the cache knows all changes; empty while it knows none.
            owner: of the objects.
            kind: of the objects.
        """
        ahead = []
        for (known, name), entry in [*self._entries.get(owner, {}).items()]:
            if known == kind and entry.is_ahead_of(version):
                ahead.append(entry.value)
            elif known == kind:
                self._drop(owner, kind, name)
        return ahead

    def has_any(self, owner: Any) -> bool:
        """Whether something was written for this owner that the cache does not have."""
        return owner in self._entries


def is_newer(version: str, than: str) -> bool:
    """Whether a resource version comes after another; versions that are no numbers count as older."""
    return version.isdigit() and than.isdigit() and int(version) > int(than)
