"""The kinds of jobs that Gangline runs. A new kind is one entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from gangline.api.core import ObjectMeta
from gangline.api.mpijob_reading import ReadJob, read_observed, renew
from gangline.api.resources import MPIJOBS, Resource
from gangline.jobs import mpijob
from gangline.jobs.names import JOB_NAME_LABEL, OPERATOR_NAME, OPERATOR_NAME_LABEL
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Plan
from gangline.jobs.settings import Settings


class Reconcile(Protocol):
    """Works out the plan for one job of a kind; pure."""

    def __call__(
        self, read: ReadJob, observed: ObservedChildren, now: datetime, *, raw_status: Any, settings: Settings
    ) -> Plan:
        """Return the plan."""
        ...


@dataclass(frozen=True, slots=True)
class JobKind:
    """How one kind is read, found and run.

    Attributes:
        resource: where its objects live.
        owner_label: label and value that all its children carry.
        name_label: label that holds the job's name on each child.
        read: from metadata, spec and status to a typed job with its errors.
        renew: the same for a spec that was read before; spares reading it again.
        reconcile: from a typed job and what is observed to a plan.
    """

    resource: Resource
    owner_label: tuple[str, str]
    name_label: str
    read: Callable[[ObjectMeta, Any, Any], ReadJob]
    renew: Callable[[ReadJob, ObjectMeta, Any], ReadJob]
    reconcile: Reconcile


JOB_KINDS: tuple[JobKind, ...] = (
    JobKind(
        resource=MPIJOBS,
        owner_label=(OPERATOR_NAME_LABEL, OPERATOR_NAME),
        name_label=JOB_NAME_LABEL,
        read=read_observed,
        renew=renew,
        reconcile=mpijob.reconcile,
    ),
)
