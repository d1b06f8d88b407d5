"""What every handler works with: the store, what is served, the keys, and where files lie."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.http.auth import Authenticator
from gangline.cluster.server.http.request_counts import RequestCounts
from gangline.cluster.server.quota.quotas import Quotas
from gangline.cluster.server.rbac.authorizer import Authorizer
from gangline.cluster.server.registry import Registry
from gangline.cluster.server.store.store import Store
from gangline.kube.http_paths import PathAnswer


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The parts of one API server.

    Attributes:
        pages: paths outside of the API and what answers them, such as ``/metrics`` of the services beside it.
        counts: what has been asked so far.
    """

    paths: ClusterPaths
    store: Store
    registry: Registry
    authenticator: Authenticator
    authorizer: Authorizer
    quotas: Quotas
    pages: dict[str, Callable[[], Awaitable[PathAnswer]]] = field(default_factory=dict)
    counts: RequestCounts = field(default_factory=RequestCounts)
