"""What every handler works with: the store, what is served, the keys, and where files lie."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.http.auth import Authenticator
from gangline.cluster.server.quota.quotas import Quotas
from gangline.cluster.server.rbac.authorizer import Authorizer
from gangline.cluster.server.registry import Registry
from gangline.cluster.server.store.store import Store


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The parts of one API server."""

    paths: ClusterPaths
    store: Store
    registry: Registry
    authenticator: Authenticator
    authorizer: Authorizer
    quotas: Quotas
