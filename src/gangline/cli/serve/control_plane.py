"""What serves a cluster's API, as the services beside it see it: our own server, or Kubernetes'."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from gangline.api.resources import Resource

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gangline.cluster.runs.bounds import Bounds
    from gangline.kube.http_paths import PathAnswer
    from gangline.kube.verbs import ObjectClient

FirstObject: TypeAlias = tuple[Resource, dict[str, Any]]
Objects: TypeAlias = Iterable[FirstObject]
Work: TypeAlias = Coroutine[Any, Any, None]
RunServices: TypeAlias = Callable[..., Work]


class ControlPlane(Protocol):
    """Serves the API of one cluster."""

    async def prepare(self) -> None:
        """Do what the node agent needs before it starts."""

    async def start(self) -> None:
        """Serve."""

    def first_objects(self, address: str) -> Objects:
        """Return what such a cluster has from its beginning; pods reach its API at ``address``."""

    async def import_services(self) -> RunServices:
        """Return ``run_services``, whose import takes long."""

    def controllers(self, client: ObjectClient, bounds: Bounds) -> Work:
        """Return those controllers of ours that run beside it, to be awaited."""

    def show(self, path: str, answer: Callable[[], Awaitable[PathAnswer]]) -> None:
        """Answer a path outside of the API to administrators."""

    def figures(self) -> Iterable[tuple[str, Iterable[Metric]]]:
        """Return the figures of what serves the API, by component."""

    async def keep(self) -> None:
        """See to it that it goes on; endless."""

    async def stop(self) -> None:
        """End it in order."""
