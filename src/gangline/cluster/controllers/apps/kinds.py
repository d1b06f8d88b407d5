"""Which plan brings which kind forward; one entry a kind."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from gangline.api.core import Node, Pod
from gangline.api.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from gangline.cluster.controllers.apps.daemon_set import plan_daemon_set
from gangline.cluster.controllers.apps.deployment import plan_deployment
from gangline.cluster.controllers.apps.plan import Seen, WorkloadObject, WorkloadPlan
from gangline.cluster.controllers.apps.replica_set import plan_replica_set
from gangline.cluster.controllers.apps.stateful_set import plan_stateful_set
from gangline.cluster.controllers.apps.workloads import WorkloadController
from gangline.cluster.controllers.caches import Caches
from gangline.cluster.controllers.current_objects import CurrentObjects
from gangline.kube.verbs import ObjectClient


@dataclass(frozen=True, slots=True)
class PlannedKind:
    """How one kind is brought forward.

    Attributes:
        resource: the kind.
        component: who reports the events.
        plan: decides.
        children: the kinds that it owns.
        on_each_node: whether the plan asks for the nodes.
    """

    resource: Resource
    component: str
    plan: Callable[[WorkloadObject, Seen, datetime], WorkloadPlan]
    children: tuple[Resource, ...] = (PODS,)
    on_each_node: bool = False


PLANNED_KINDS = (
    PlannedKind(REPLICA_SETS, "replicaset-controller", partial(plan_replica_set, REPLICA_SETS)),
    PlannedKind(
        REPLICATION_CONTROLLERS,
        "replication-controller",
        partial(plan_replica_set, REPLICATION_CONTROLLERS),
    ),
    PlannedKind(DEPLOYMENTS, "deployment-controller", plan_deployment, (REPLICA_SETS,)),
    PlannedKind(STATEFUL_SETS, "statefulset-controller", plan_stateful_set, (PODS, CONTROLLER_REVISIONS)),
    PlannedKind(
        DAEMON_SETS, "daemonset-controller", plan_daemon_set, (PODS, CONTROLLER_REVISIONS), on_each_node=True
    ),
)


def workload_controllers(
    client: ObjectClient, caches: Caches, served: Collection[Resource]
) -> list[WorkloadController]:
    """Return the controllers of the kinds that are served."""
    objects: dict[Resource, CurrentObjects[Any]] = {}

    def of(resource: Resource) -> CurrentObjects[Any]:
        if resource not in objects:
            type_: type[Any] = Pod if resource == PODS else WorkloadObject
            objects[resource] = CurrentObjects(caches, resource, type_)
        return objects[resource]

    return [
        WorkloadController(
            client,
            kind.component,
            of(kind.resource),
            [of(child) for child in kind.children],
            kind.plan,
            caches.typed(NODES, Node) if kind.on_each_node else None,
        )
        for kind in PLANNED_KINDS
        if kind.resource in served
    ]
