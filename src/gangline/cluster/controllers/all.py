"""All controllers of the one-machine cluster in one task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from gangline.api.resources import Resource
from gangline.cluster.controllers.apps.kinds import workload_controllers
from gangline.cluster.controllers.caches import Caches
from gangline.cluster.controllers.endpoints import EndpointsController
from gangline.cluster.controllers.garbage import GarbageController
from gangline.cluster.controllers.inventory import InUse, ObjectInventory
from gangline.cluster.controllers.job import JobController
from gangline.cluster.controllers.namespaces import NamespaceController
from gangline.cluster.controllers.nodes import NodeController
from gangline.cluster.controllers.run_recorder import RunRecorder
from gangline.cluster.controllers.storage.volumes import StorageController
from gangline.cluster.runs.bounds import Bounds
from gangline.cluster.runs.history import History
from gangline.kube.verbs import ObjectClient


class Controller(Protocol):
    """What brings objects forward."""

    async def run(self) -> None:
        """Work until cancelled."""


async def run_controllers(
    client: ObjectClient,
    kinds: Iterable[Resource],
    history: History | None = None,
    bounds: Bounds | None = None,
    authority: str = "",
    folders: Path | None = None,
    in_use: InUse | None = None,
) -> None:
    """Run every controller until cancelled; the server may come up later or go away meanwhile.

    Args:
        client: of the API server.
        kinds: those that the server stores besides custom ones.
        history: where runs are written down; None for nowhere.
        bounds: what is kept of them; None for the usual ones.
        authority: certificate of the cluster's authority in PEM, for every namespace; empty for none.
        folders: where folders are made for claims; None where nothing is bound.
        in_use: tells which kinds have had objects; None watches all from the start.
    """
    kinds = tuple(kinds)
    caches = Caches(client)
    jobs = JobController(client, caches)
    nodes = NodeController(client, caches)
    endpoints = EndpointsController(client, caches)
    workloads = workload_controllers(client, caches, kinds)
    storage = [StorageController(client, caches, folders)] if folders is not None else []
    recorder = [] if history is None else [RunRecorder(client, caches, history, bounds or Bounds())]
    # After those that need more of an object than its bare metadata.
    inventory = ObjectInventory(caches, kinds, in_use)
    controllers: tuple[Controller, ...] = (
        jobs,
        nodes,
        endpoints,
        *workloads,
        *storage,
        GarbageController(client, inventory),
        NamespaceController(client, caches, inventory, authority),
    )
    await _run(caches, (*controllers, *recorder))


async def run_machine_controllers(
    client: ObjectClient, history: History, bounds: Bounds, folders: Path
) -> None:
    """Run what kube-controller-manager does not: runs are written down, claims get folders.

    Arguments as for ``run_controllers``.
    """
    caches = Caches(client)
    await _run(
        caches, (StorageController(client, caches, folders), RunRecorder(client, caches, history, bounds))
    )


async def _run(caches: Caches, controllers: Iterable[Controller]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(caches.run(), name="caches")
        for controller in controllers:
            group.create_task(controller.run(), name=type(controller).__name__)
