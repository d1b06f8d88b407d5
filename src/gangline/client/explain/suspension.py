"""What running jobs have had and which of them are being suspended, as the scheduler knows it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gangline.clock import parse_time
from gangline.placement import AttainedService
from gangline.scheduler.suspended_gangs import service_of
from gangline.workloads.kinds import kind_of
from gangline.workloads.suspension import CHECKPOINT_ANNOTATION, SUSPENDABLE, SuspendableJob

if TYPE_CHECKING:
    from gangline.client.jobs.cluster_view import ClusterView
    from gangline.cluster.runs.record import RunRecord

GRACE_S = 30
"""For a pod that does not say how long it may take to end."""


def with_services(view: ClusterView, jobs: Sequence[RunRecord]) -> ClusterView:
    """Return the view with what gangs have had, and with those that are being suspended.

    Args:
        view: of the cluster.
        jobs: its jobs with their pods.
    """
    services: dict[str, AttainedService] = {}
    leaving: set[str] = set()
    for record in jobs:
        gangs = {view.gang_of(pod) for pod in record.pods} - {""}
        if not gangs or kind_of(record.job).resource not in SUSPENDABLE:
            continue
        known = msgspec.convert(record.job, SuspendableJob, strict=False)
        if not known.is_free:
            continue
        notes = [pod["metadata"].get("annotations") or {} for pod in record.pods]
        is_saving = any(CHECKPOINT_ANNOTATION in found for found in notes)
        services |= dict.fromkeys(gangs, service_of(known, is_saving=is_saving))
        leaving |= gangs if known.is_suspended_by_us else set()
    snapshot = msgspec.structs.replace(view.snapshot, services=services, leaving=frozenset(leaving))
    return replace(view, snapshot=snapshot)


def ends_by(view: ClusterView, gang: str, now: datetime) -> datetime | None:
    """Return when the pods of a gang that is suspended have ended at the latest, by their grace periods.

    None where they are not seen.
    """
    ends = []
    for pod in view.pods:
        if view.gang_of(pod) == gang:
            going = pod["metadata"].get("deletionTimestamp")
            grace_s = pod["spec"].get("terminationGracePeriodSeconds", GRACE_S)
            ends.append(parse_time(going) if going else now + timedelta(seconds=grace_s))
    return max(ends, default=None)
