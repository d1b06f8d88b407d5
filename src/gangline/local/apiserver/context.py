"""What every handler works with: the store, what is served, the keys, and where files lie."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.local.apiserver.auth import Authenticator
from gangline.local.apiserver.registry import Registry
from gangline.local.paths import ClusterPaths
from gangline.local.store import Store


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The parts of one API server."""

    paths: ClusterPaths
    store: Store
    registry: Registry
    authenticator: Authenticator
