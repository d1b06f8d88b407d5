"""v1alpha1 of MPIJob: one template for both roles, and a number of GPUs or processors for the whole job."""

from __future__ import annotations

from copy import deepcopy
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

import msgspec

from gangline.api.decode import show
from gangline.api.mpijob import LAUNCHER, WORKER
from gangline.api.mpijob_legacy import LegacyFields
from gangline.errors import FieldError
from gangline.units import parse_quantity

Object = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
_UNITS_MAX: Final = 2**31 - 1
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
_MASTER: Final = "node-role.kubernetes.io/master"
UNITS_PER_NODE: Final = {"gpus": "gpusPerNode", "processingUnits": "processingUnitsPerNode"}
"""The fields that count units of the whole job, and for each the one that says how many a worker has."""


class Rewritten(msgspec.Struct, frozen=True):
    """The two roles of v2beta1.

    Attributes:
        roles: ``mpiReplicaSpecs`` in wire form.
        slots: slots of each worker where the job does not say.
        counted: the field that gave the number of workers.
        errors: what does not come out even.
    """

    roles: Object
    slots: int
    counted: str
    errors: list[FieldError] = []


def rewrite_template(legacy: LegacyFields, slots: Any) -> Rewritten:
    """Return both roles of a v1alpha1 job.

    The worker is the template with its units as a limit and no program of its own; the launcher is the
    template without accelerators. Slots are the units of a worker.

    Args:
        legacy: the typed fields.
        slots: ``slotsPerWorker`` as written; only whether it is there matters.
    """
    resource = GPU if legacy.gpus is not None else legacy.processing_resource_type or GPU
    template = legacy.template if legacy.template is not None else {}
    counted, workers, units, errors = _allocate(legacy, template, resource)
    if legacy.template is None:
        errors.append(FieldError("Required", "spec.template", "an MPIJob of v1alpha1 needs a pod template"))
    policy = _object(template.get("spec")).get("restartPolicy")
    restart_policy = "Never" if policy == "Never" else "OnFailure"
    roles = {
        LAUNCHER: {
            "replicas": 1,
            "restartPolicy": restart_policy,
            "template": _launcher(template, resource, on_master=bool(legacy.launcher_on_master)),
        },
        WORKER: {"replicas": workers, "template": _worker(template, resource, units, counted)},
    }
    return Rewritten(roles, max(units, 1), counted, errors)


def _allocate(
    legacy: LegacyFields, template: Object, resource: str
) -> tuple[str, int, int, list[FieldError]]:
    """Return the field that counts, the workers, the units of each, and errors."""
    amounts = {
        "gpus": legacy.gpus,
        "processingUnits": legacy.processing_units,
        "replicas": legacy.replicas,
    }
    given = [name for name, amount in amounts.items() if amount is not None]
    if len(given) != 1:
        rule = "exactly one of `gpus`, `processingUnits` and `replicas` says how large the job is"
        path = f"spec.{given[1]}" if given else "spec.replicas"
        return (
            given[0] if given else "replicas",
            1,
            1,
            [FieldError("Invalid" if given else "Required", path, rule)],
        )
    counted = given[0]
    total = amounts[counted] or 0
    if total < 1:
        return counted, 1, 1, [FieldError("Invalid", f"spec.{counted}", "must be at least 1", show(total))]
    if counted == "replicas":
        return counted, total, _units_of(template, resource), []
    wanted = legacy.gpus_per_node if counted == "gpus" else legacy.processing_units_per_node
    per_node = 1 if wanted is None else wanted
    if per_node < 1:
        error = FieldError("Invalid", f"spec.{UNITS_PER_NODE[counted]}", "must be at least 1", show(per_node))
        return counted, 1, 1, [error]
    if total < per_node:
        return counted, 1, total, []
    if total % per_node:
        rule = f"must be a multiple of `{UNITS_PER_NODE[counted]}` ({per_node}), or less than it"
        return counted, 1, 1, [FieldError("Invalid", f"spec.{counted}", rule, show(total))]
    return counted, total // per_node, per_node, []


def _units_of(template: Object, resource: str) -> int:
    """Return what the first container's limit says, 0 when it says nothing that can be read."""
    containers = _containers(template)
    limits = _object(_object(containers[0]).get("resources")).get("limits") if containers else None
    try:
        amount = parse_quantity(_object(limits).get(resource, 0))
    except ValueError:
        return 0
    return int(min(amount, Decimal(_UNITS_MAX)).to_integral_value(ROUND_CEILING))


def _launcher(template: Object, resource: str, *, on_master: bool) -> Object:
    result = deepcopy(template)
    if resource != "cpu":
        for container in _containers(result):
            for part in ("limits", "requests"):
                _object(_object(_object(container).get("resources")).get(part)).pop(resource, None)
    spec = result.get("spec")
    if not isinstance(spec, dict):
        return result
    spec.pop("restartPolicy", None)
    if on_master:
        spec["nodeSelector"] = {**_object(spec.get("nodeSelector")), _CONTROL_PLANE: ""}
        given = spec.get("tolerations")
        spec["tolerations"] = [
            *(given if isinstance(given, list) else []),
            *(
                {"key": key, "operator": "Exists", "effect": "NoSchedule"}
                for key in (_CONTROL_PLANE, _MASTER)
            ),
        ]
    return result


def _worker(template: Object, resource: str, units: int, counted: str) -> Object:
    result = deepcopy(template)
    spec = result.get("spec")
    if isinstance(spec, dict):
        spec.pop("restartPolicy", None)
    containers = _containers(result)
    main = containers[0] if containers else None
    if not isinstance(main, dict):
        return result
    main.pop("command", None)
    main.pop("args", None)
    if counted != "replicas":
        resources = dict(_object(main.get("resources")))
        resources["limits"] = {**_object(resources.get("limits")), resource: units}
        if resource in _object(resources.get("requests")):
            resources["requests"] = {**resources["requests"], resource: units}
        main["resources"] = resources
    return result


def _containers(template: Object) -> list[Any]:
    containers = _object(template.get("spec")).get("containers")
    return containers if isinstance(containers, list) else []


def _object(value: Any) -> Object:
    return value if isinstance(value, dict) else {}
