"""What is served right now: the built-in rows, and those of every CRD in the store; and what a path means.

Discovery and OpenAPI documents are made from ``rows`` when asked for; ``version`` changes with the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from gangline.api import resources as r
from gangline.cluster.server import status_errors
from gangline.cluster.server.resources import BUILT_IN_SERVED, ServedResource, crd_served
from gangline.cluster.server.store.events import Change


def collection_of(served: ServedResource) -> str:
    """Return the name under which the store keeps the objects of a kind, shared by its versions."""
    return f"{served.storage_group}/{served.storage_plural or served.resource.plural}"


CRD_COLLECTION = f"{r.CRDS.group}/{r.CRDS.plural}"


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """What a path names.

    Attributes:
        served: the kind at its version.
        namespace: empty for cluster-scoped kinds and for collections over all namespaces.
        name: empty for a collection.
        subresource: empty for the object itself.
        rest: what follows the subresource (``proxy`` paths).
    """

    served: ServedResource
    namespace: str
    name: str = ""
    subresource: str = ""
    rest: str = ""

    @property
    def collection(self) -> str:
        """Collection of the store."""
        return collection_of(self.served)

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of the object in the store."""
        return (self.collection, self.namespace, self.name)


class Registry:
    """The rows by group, version and plural."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], ServedResource] = {}
        self._custom: dict[str, list[ServedResource]] = {}
        self.version = 0
        for served in BUILT_IN_SERVED:
            self._rows[_key(served)] = served

    @property
    def rows(self) -> list[ServedResource]:
        """Every row, built-in ones first."""
        return list(self._rows.values())

    def find(self, group: str, version: str, plural: str) -> ServedResource | None:
        """Return the row, if it is served."""
        return self._rows.get((group, version, plural))

    def storage_row(self, served: ServedResource) -> ServedResource:
        """Return the row of the version in which objects of the kind are stored."""
        if served.storage_version:
            return served
        collection = collection_of(served)
        rows = (
            row for row in self._rows.values() if row.storage_version and collection_of(row) == collection
        )
        return next(rows, served)

    def put_crd(self, crd: dict[str, Any]) -> None:
        """Serve a CRD, or what has changed of it, from now on; one that is not established is not served."""
        name = crd["metadata"]["name"]
        self._drop(name)
        if is_established(crd):
            rows = crd_served(crd)
            self._custom[name] = rows
            for row in rows:
                self._rows[_key(row)] = row
        self.version += 1

    def drop_crd(self, name: str) -> None:
        """Serve a CRD no more."""
        self._drop(name)
        self.version += 1

    def on_change(self, change: Change) -> None:
        """Follow the CRDs of the store."""
        if change.type == "DELETED":
            self.drop_crd(change.name)
        else:
            self.put_crd(change.new.obj)

    def _drop(self, name: str) -> None:
        for row in self._custom.pop(name, []):
            self._rows.pop(_key(row), None)

    def parse(self, path: str) -> RequestTarget:
        """Return what a path under ``/api`` or ``/apis`` names.

        Raises:
            StatusError: 404, no such path.

        Cost: a few microseconds.
        """
        parts = [unquote(part) if "%" in part else part for part in path.strip("/").split("/")]
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise status_errors.no_such_path()
        namespace = ""
        if (
            rest[0] == "namespaces"
            and len(rest) > 2
            and not (group == "" and rest[2] in ("status", "finalize"))
        ):
            namespace, rest = rest[1], rest[2:]
        served = self._rows.get((group, version, rest[0]))
        if served is None:
            raise status_errors.no_such_path()
        if namespace and not served.resource.namespaced:
            raise status_errors.no_such_path()
        return RequestTarget(
            served,
            namespace,
            rest[1] if len(rest) > 1 else "",
            rest[2] if len(rest) > 2 else "",
            "/".join(rest[3:]),
        )


def _key(served: ServedResource) -> tuple[str, str, str]:
    return (served.resource.group, served.resource.version, served.resource.plural)


def is_established(crd: dict[str, Any]) -> bool:
    """Whether the CRD's condition Established is True."""
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)
