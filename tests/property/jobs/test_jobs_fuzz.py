"""Whatever is written into an MPIJob: field errors or a plan that an API server can take, never a traceback.

What `fuzzed_jobs` makes goes through reading, defaults, rules and reconciliation over several states of its
children. `GANGLINE_FUZZ_EXAMPLES` asks for more jobs than usual; `make test-faults` takes 10,000.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from fuzzed_jobs import documents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.api.core import Condition, ConfigMap, Job, JobStatus, Pod, PodStatus, Secret, Service
from gangline.api.mpijob import AnyJob, JobMeta, ManagedFields
from gangline.api.mpijob_reading import ReadJob, read_mpijob, read_observed
from gangline.api.pod_group import PodGroup
from gangline.clock import parse_time
from gangline.jobs.conditions import MESSAGE_CHARACTERS_MAX
from gangline.jobs.mpijob import reconcile
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Create, EnsureKeyPair, Plan
from gangline.jobs.settings import Settings

EXAMPLES = int(os.environ.get("GANGLINE_FUZZ_EXAMPLES", "500"))
NOW = parse_time("2026-05-01T12:00:00Z")
OBJECT_BYTES_MAX = 1_500_000
"""What etcd takes; fuzzed jobs are smaller, and a plan must not blow them up."""

case_limit_s = 20.0
"""Processor time of one job, the largest that the rules allow included."""

TYPES: dict[str, Any] = {
    "Service": Service,
    "ConfigMap": ConfigMap,
    "Secret": Secret,
    "Job": Job,
    "Pod": Pod,
    "PodGroup": PodGroup,
}

STATUS: dict[str, Any] = {
    "conditions": [
        {"type": "Created", "status": "True", "reason": "MPIJobCreated"},
        {"type": "Running", "status": "True", "reason": "MPIJobRunning"},
    ],
    "replicaStatuses": {"Launcher": {"active": 1}, "Worker": {"active": 2}},
    "startTime": "2026-05-01T11:00:00Z",
    "restarts": 1,
}


def check_errors(read: ReadJob) -> None:
    for error in (*read.errors, *read.warnings):
        assert error.path and error.reason and error.message and str(error)


def observed_after(plan: Plan) -> ObservedChildren:
    """Return what there is once a plan was carried out, read as a cache reads it."""
    typed: dict[str, dict[str, Any]] = {kind: {} for kind in TYPES}
    for action in plan.actions:
        wire = action.object if isinstance(action, Create) else None
        wire = action.secret if isinstance(action, EnsureKeyPair) else wire
        if wire:
            wire = msgspec.json.decode(msgspec.json.encode(wire))
            wire["metadata"]["uid"] = "u"
            if wire["kind"] == "Secret":
                wire["data"] |= {"ssh-privatekey": "eA==", "ssh-publickey": "eA=="}
            typed[wire["kind"]][wire["metadata"]["name"]] = msgspec.convert(wire, TYPES[wire["kind"]])
    return ObservedChildren(*typed.values())


SETTINGS = st.builds(
    Settings, gang_scheduling=st.sampled_from(["", "volcano", "gangs"]), has_remote_shell=st.booleans()
)
THOROUGH = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def read_as_stored(document: Any, status: Any) -> ReadJob:
    """Return the job as the operator's cache has it, written in the version that the document names."""
    try:
        job = msgspec.convert({"metadata": document.get("metadata"), "spec": document.get("spec")}, AnyJob)
        meta = job.metadata
    except msgspec.ValidationError:  # no API server stores such metadata
        meta = JobMeta(name="pi")
    version = str(document.get("apiVersion"))
    writers = [ManagedFields(manager="kubectl", api_version=version, time="2026-05-01T11:00:00Z")]
    meta = msgspec.structs.replace(meta, namespace="ns", uid="job", generation=1, managed_fields=writers)
    return read_observed(meta, document.get("spec"), status)


def with_pods(observed: ObservedChildren, phase: str) -> ObservedChildren:
    """Return the state in which all pods, a launcher's too, are in one phase, and the launcher has ended."""
    pods = {
        name: msgspec.structs.replace(pod, status=PodStatus(phase=phase))
        for name, pod in observed.pods.items()
    }
    condition = Condition(type="Complete" if phase == "Succeeded" else "Failed", status="True")
    ended = JobStatus(conditions=[condition] if phase in ("Succeeded", "Failed") else [])
    jobs = {name: msgspec.structs.replace(job, status=ended) for name, job in observed.jobs.items()}
    return replace(observed, pods=pods, jobs=jobs)


def check_plan(plan: Plan) -> None:
    """The plan can be sent: it is JSON, and within what an API server takes in one object."""
    for action in plan.actions:
        assert len(msgspec.json.encode(action)) < OBJECT_BYTES_MAX
    assert len(msgspec.json.encode(plan.status)) < OBJECT_BYTES_MAX
    for told in (*plan.events, *plan.warnings):
        assert len(told.message) <= MESSAGE_CHARACTERS_MAX


@pytest.mark.timeout(1200)
@THOROUGH
@given(documents(), SETTINGS, st.booleans())
def test_any_job_has_errors_or_a_plan(document: Any, how: Settings, has_status: bool) -> None:
    started_s = time.thread_time()
    check_errors(read_mpijob(document))
    status = STATUS if has_status else None
    read = read_as_stored(document, status)
    check_errors(read)

    plan = reconcile(read, ObservedChildren(), NOW, raw_status=status, settings=how)

    assert not read.errors or plan.actions == ()
    check_plan(plan)
    if not read.errors:
        observed = observed_after(plan)
        for phase in ("Pending", "Running", "Failed", "Succeeded"):
            seen = with_pods(observed, phase)
            check_plan(reconcile(read, seen, NOW, raw_status=plan.status or status, settings=how))
    assert time.thread_time() - started_s < case_limit_s
