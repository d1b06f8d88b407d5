"""All controllers of the one-machine cluster in one task."""

from __future__ import annotations

import asyncio

from gangline.kube.client import Client
from gangline.local.controllers.caches import Caches
from gangline.local.controllers.endpoints import EndpointsController
from gangline.local.controllers.garbage import GarbageController
from gangline.local.controllers.inventory import Inventory
from gangline.local.controllers.job import JobController
from gangline.local.controllers.namespaces import NamespaceController
from gangline.local.controllers.nodes import NodeController


async def run_controllers(client: Client) -> None:
    """Run every controller until cancelled; the server may come up later or go away meanwhile."""
    caches = Caches(client)
    jobs = JobController(client, caches)
    nodes = NodeController(client, caches)
    endpoints = EndpointsController(client, caches)
    inventory = Inventory(caches)  # after those that need more of an object than its bare metadata
    controllers = (
        jobs,
        nodes,
        endpoints,
        GarbageController(client, inventory),
        NamespaceController(client, caches, inventory),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(caches.run(), name="caches")
        for controller in controllers:
            group.create_task(controller.run(), name=type(controller).__name__)
