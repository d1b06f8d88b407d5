"""A launcher that never ran takes an edit of its template: its Job is made anew. Pure.

Kubernetes lets the template of a Job not change. The Job says of which template it was made; one that says
nothing, as those of other operators, stays.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from gangline.api.core import Job, is_true
from gangline.api.mpijob import LAUNCHER, MPIJob
from gangline.jobs.names import LAUNCHER_TEMPLATE_ANNOTATION
from gangline.jobs.observed_job import ObservedJob
from gangline.jobs.plan import Emit

LAUNCHER_EDITED: Final = "MPIJobLauncherEdited"

ENDS: Final = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
"""Conditions of a Job that is over, or about to be."""


def template_digest(job: MPIJob) -> str:
    """Return what tells the launcher's template from an edited one: 16 hexadecimal digits."""
    role = job.spec.replica(LAUNCHER)
    assert role is not None
    text = msgspec.json.encode((role.template, role.restart_policy), order="sorted")
    return blake2b(text, digest_size=8).hexdigest()


def is_edited(observed_job: ObservedJob) -> bool:
    """Return whether the launcher is of another template than the job's, and has not run."""
    launcher = observed_job.launcher
    if launcher is None or launcher.metadata.deletion_timestamp or _has_run(launcher, observed_job):
        return False
    made_of = launcher.metadata.annotations.get(LAUNCHER_TEMPLATE_ANNOTATION)
    return made_of is not None and made_of != template_digest(observed_job.job)


def _has_run(launcher: Job, observed_job: ObservedJob) -> bool:
    """Return whether a container of the launcher has started, or may have without our knowing it."""
    status, pods = launcher.status, observed_job.launcher_pods
    is_over = any(is_true(status.conditions, type_) for type_ in ENDS)
    if is_over or status.failed or status.succeeded or status.ready or status.terminating:
        return True
    return any(pod.status.phase != "Pending" for pod in pods) if pods else bool(status.start_time)


def edited_event(launcher: str) -> Emit:
    """Return what is told of a launcher that is made anew."""
    return Emit("Normal", LAUNCHER_EDITED, f"launcher {launcher} was edited before it ran; it is made anew")
