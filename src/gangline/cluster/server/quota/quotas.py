"""ResourceQuotas: what each namespace has used, whether another object fits, and the status that tells it.

Counted is what the store has, change by change, and what is on its way into it: of two objects that fit one
at a time only one is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from gangline.api import resources as r
from gangline.api.resources import Resource
from gangline.cluster.server import status_errors
from gangline.cluster.server.quota import usage as quota_usage
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.store.events import Change, Entry
from gangline.cluster.server.store.store import Store
from gangline.units import parse_quantity
from gangline.workloads.requests import Amounts, add_amounts

QUOTA_COLLECTION = "/resourcequotas"
Place = tuple[str, str]
"""Namespace and name of a quota."""


class Quotas:
    """The quotas of one cluster.

    Attributes:
        changed: places of quotas whose status is to be written, and an event that says so.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._used: dict[Place, Amounts] = {}
        self._coming: dict[Place, list[Amounts]] = {}
        self._listened: set[str] = set()
        self.stale: set[Place] = set()
        self.changed = asyncio.Event()
        self._listen(QUOTA_COLLECTION)
        for entry in store.entries(QUOTA_COLLECTION):
            self._mark(_place(entry))

    @contextmanager
    def charge(self, target: RequestTarget, obj: Mapping[str, Any]) -> Iterator[None]:
        """Hold room for a new object while it is written.

        Raises:
            StatusError: 403, it does not fit.
        """
        held: list[tuple[Place, Amounts]] = []
        for entry in self._store.entries(QUOTA_COLLECTION, target.namespace) if target.namespace else ():
            taken = self._checked(entry, target, obj)
            if taken:
                held.append((_place(entry), taken))
        for place, taken in held:
            self._coming.setdefault(place, []).append(taken)
        try:
            yield
        finally:
            for place, taken in held:
                self._coming[place].remove(taken)

    def status(self, place: Place) -> dict[str, Any] | None:
        """Return the status of a quota as it is now, None where it is gone."""
        entry = self._store.get(QUOTA_COLLECTION, *place)
        if entry is None:
            return None
        hard = _hard(entry)
        used = self._total(entry)
        return {
            "hard": hard,
            "used": {name: quota_usage.shown(name, used.get(name, Decimal(0))) for name in hard},
        }

    def _checked(self, entry: Entry, target: RequestTarget, obj: Mapping[str, Any]) -> Amounts:
        """Return what a new object takes of one quota.

        Raises:
            StatusError: 403.
        """
        resource, hard, name = target.served.resource, _hard(entry), str(obj["metadata"]["name"])
        taken = _taken(entry, resource, obj)
        if not taken:
            return taken
        quota = entry.obj["metadata"]["name"]
        unsaid = quota_usage.unsaid(hard, obj.get("spec") or {}) if resource == r.PODS else ""
        if unsaid:
            raise status_errors.refused(target.served, name, f"failed quota: {quota}: must specify {unsaid}")
        used = add_amounts([self._total(entry), *self._coming.get(_place(entry), ())])
        none = Decimal(0)
        over = sorted(
            key
            for key in taken
            if taken[key] and used.get(key, none) + taken[key] > parse_quantity(hard[key])
        )
        if over:
            lists = (
                ("requested", [f"{key}={quota_usage.shown(key, taken[key])}" for key in over]),
                ("used", [f"{key}={quota_usage.shown(key, used.get(key, none))}" for key in over]),
                ("limited", [f"{key}={hard[key]}" for key in over]),
            )
            told = ", ".join(f"{word}: {','.join(items)}" for word, items in lists)
            raise status_errors.refused(target.served, name, f"exceeded quota: {quota}, {told}")
        return taken

    def _total(self, entry: Entry) -> Amounts:
        """Return what is used of a quota; counted once, then kept up to date by every change."""
        place = _place(entry)
        if place not in self._used:
            parts = []
            for group, plural in {quota_usage.counted_kind(name) for name in _hard(entry)}:
                collection = f"{group}/{plural}"
                self._listen(collection)
                resource = Resource(group, "", plural, "")
                objects = self._store.entries(collection, place[0])
                parts += [_taken(entry, resource, found.obj) for found in objects]
            self._used[place] = add_amounts(parts)
        return self._used[place]

    def _listen(self, collection: str) -> None:
        if collection not in self._listened:
            self._listened.add(collection)
            self._store.ring.listen(collection, self._on_change)

    def _on_change(self, change: Change) -> None:
        if change.collection == QUOTA_COLLECTION:
            place = (change.namespace, change.name)
            if change.old is None or change.type == "DELETED" or _hard(change.old) != _hard(change.new):
                self._used.pop(place, None)
            self._mark(place)
        group, _, plural = change.collection.partition("/")
        resource = Resource(group, "", plural, "")
        for entry in self._store.entries(QUOTA_COLLECTION, change.namespace):
            place = _place(entry)
            if place not in self._used:
                continue
            before = {} if change.old is None else _taken(entry, resource, change.old.obj)
            after = {} if change.type == "DELETED" else _taken(entry, resource, change.new.obj)
            if before != after:
                less = {name: -amount for name, amount in before.items()}
                self._used[place] = add_amounts([self._used[place], less, after])
                self._mark(place)

    def _mark(self, place: Place) -> None:
        self.stale.add(place)
        self.changed.set()


def _place(entry: Entry) -> Place:
    meta = entry.obj["metadata"]
    return meta["namespace"], meta["name"]


def _hard(entry: Entry) -> dict[str, Any]:
    return dict((entry.obj.get("spec") or {}).get("hard") or {})


def _taken(entry: Entry, resource: Resource, obj: Mapping[str, Any]) -> Amounts:
    """Return what an object takes of what a quota bounds."""
    if not quota_usage.is_in_scope(entry.obj, resource, obj):
        return {}
    hard = _hard(entry)
    return {name: amount for name, amount in quota_usage.usage(resource, obj).items() if name in hard}
