"""What a user changes of a job that is there: suspended, going on, of another size. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gangline.api.resources import MPIJOBS, PYTORCHJOBS, TFJOBS
from gangline.workloads.kinds import kind_of
from gangline.workloads.suspension import SUSPENDABLE

Obj = dict[str, Any]
Change = Callable[[Obj], Obj | None]
"""From a job to the merge patch that changes it; None for a kind that cannot be changed so."""

WORKERS_MAX: Final = 100_000
WORKER: Final = "Worker"
_SCALED: Final = {
    MPIJOBS.kind: "mpiReplicaSpecs",
    TFJOBS.kind: "tfReplicaSpecs",
    PYTORCHJOBS.kind: "pytorchReplicaSpecs",
}


def suspension(job: Obj, *, is_wanted: bool) -> Obj | None:
    """Return the patch that suspends a job or lets it go on; None for a kind without suspension."""
    path = SUSPENDABLE.get(kind_of(job).resource)
    if path is None:
        return None
    spec: Any = is_wanted
    for name in reversed(path):
        spec = {name: spec}
    return {"spec": spec}


def workers_of(job: Obj) -> int | None:
    """Return how many workers a job asks for; None where it has no role of that name."""
    role = ((job.get("spec") or {}).get(_SCALED.get(job["kind"], "")) or {}).get(WORKER)
    if not isinstance(role, dict):
        return None
    count = role.get("replicas")
    return 1 if count is None else count


def scaling(job: Obj, workers: int) -> Obj | None:
    """Return the patch that gives a job so many workers; None where it has no role of that name."""
    if workers_of(job) is None:
        return None
    return {"spec": {_SCALED[job["kind"]]: {WORKER: {"replicas": workers}}}}
