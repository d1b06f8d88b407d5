"""Whatever is written into an MPIJob: field errors or a plan that an API server can take, never a traceback.

Good jobs of every version are broken at random places by random values; what comes out goes through reading,
defaults, rules and reconciliation. Thousands of jobs by default; `GANGLINE_FUZZ_EXAMPLES` asks for more.
"""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.api.codec import load_file
from gangline.api.core import ConfigMap, Job, ObjectMeta, Pod, Secret, Service
from gangline.api.mpijob import AnyJob
from gangline.api.mpijob_reading import ReadJob, read_mpijob, read_observed
from gangline.api.pod_group import PodGroup
from gangline.clock import parse_time
from gangline.jobs.mpijob import reconcile
from gangline.jobs.observed import Observed
from gangline.jobs.plan import Create, EnsureKeyPair, Plan
from gangline.jobs.settings import Settings

EXAMPLES = int(os.environ.get("GANGLINE_FUZZ_EXAMPLES", "2000"))
FOLDER = Path(__file__).resolve().parents[3] / "examples" / "published"
NOW = parse_time("2026-05-01T12:00:00Z")
TYPES: dict[str, Any] = {
    "Service": Service,
    "ConfigMap": ConfigMap,
    "Secret": Secret,
    "Job": Job,
    "Pod": Pod,
    "PodGroup": PodGroup,
}

RICH: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {
        "name": "rich",
        "labels": {"a": "b"},
        "annotations": {
            "gangline.dev/on-worker-failure": "restart-gang",
            "scheduling.volcano.sh/queue-name": "q",
        },
    },
    "spec": {
        "slotsPerWorker": 2,
        "runLauncherAsWorker": True,
        "mpiImplementation": "Intel",
        "launcherCreationPolicy": "WaitForWorkersReady",
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "runPolicy": {
            "cleanPodPolicy": "All",
            "ttlSecondsAfterFinished": 5,
            "activeDeadlineSeconds": 60,
            "backoffLimit": 2,
            "suspend": True,
            "managedBy": "kubeflow.org/mpi-operator",
            "schedulingPolicy": {"minAvailable": 2, "minResources": {"cpu": "1"}, "priorityClass": "high"},
        },
        "mpiReplicaSpecs": {
            role: {
                "replicas": replicas,
                "restartPolicy": "Never",
                "template": {
                    "metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}},
                    "spec": {
                        "hostNetwork": True,
                        "restartPolicy": "Never",
                        "nodeSelector": {"a": "b"},
                        "tolerations": [{"key": "a"}],
                        "schedulerName": "mine",
                        "priorityClassName": "low",
                        "dnsConfig": {"searches": ["here"]},
                        "volumes": [{"name": "data", "emptyDir": {}}],
                        "initContainers": [{"name": "init", "image": "i"}],
                        "containers": [
                            {
                                "name": "main",
                                "image": "i",
                                "command": ["mpirun", "true"],
                                "env": [{"name": "A", "value": "b"}],
                                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                                "resources": {
                                    "limits": {"cpu": "1", "memory": "1Gi"},
                                    "requests": {"cpu": 1},
                                },
                            },
                            {"name": "side", "image": "i"},
                        ],
                    },
                },
            }
            for role, replicas in (("Launcher", 1), ("Worker", 2))
        },
    },
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
GOOD = [RICH, *(load_file(path)[0].value for path in sorted(FOLDER.glob("*.yaml")))]

WORDS = st.sampled_from(
    [
        *("", "a", "x-1", "Running", "OnFailure", "kubeflow.org/mpi-operator", "1Gi", "-1", "1e99", "1e-99"),
        *(
            "1e999999",
            "sshd",
            "/etc/mpi",
            "\0",
            "ü",
            "x" * 300,
            "null",
            "2026-05-01T12:00:00Z",
            "None",
            "nan",
        ),
    ]
)
NAMES = st.sampled_from(
    [
        *("name", "image", "command", "env", "spec", "template", "replicas", "gpus", "Worker", "Launcher"),
        *("mainContainer", "cleanPodPolicy", "containers", "mpiReplicaSpecs", "nodeSelector", "gangline", ""),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**31 - 1, 2**31, -(2**63), 2**63, 2**70, 0.5, 1e300, float("inf"), float("nan")])
    | WORDS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of everything inside a document."""
    found = [path] if path else []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found += places(value[key], (*path, key))
    return found


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A good job, broken in one to four places."""
    document = deepcopy(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(places(document)))
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "remove", "add", "repeat"])):
            case "replace":
                holder[path[-1]] = draw(VALUES)
            case "remove" if len(places(document)) > 1:
                del holder[path[-1]]
            case "add" if isinstance(holder, dict):
                holder[draw(NAMES)] = draw(VALUES)
            case "repeat" if isinstance(holder, list):
                holder.append(deepcopy(holder[path[-1]]))
    return document


def check_errors(read: ReadJob) -> None:
    for error in (*read.errors, *read.warnings):
        assert error.path and error.reason and error.message and str(error)


def observed_after(plan: Plan) -> Observed:
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
    return Observed(*typed.values())


SETTINGS = st.builds(
    Settings, gang_scheduling=st.sampled_from(["", "volcano", "gangs"]), has_remote_shell=st.booleans()
)
THOROUGH = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.timeout(600)
@THOROUGH
@given(documents(), SETTINGS, st.booleans())
def test_any_job_has_errors_or_a_plan(document: Any, how: Settings, has_status: bool) -> None:
    check_errors(read_mpijob(document))
    metadata = document.get("metadata")
    try:
        job = msgspec.convert({"metadata": metadata, "spec": document.get("spec")}, AnyJob)
        meta = msgspec.structs.replace(job.metadata, namespace="ns", uid="job", generation=1)
    except msgspec.ValidationError:  # no API server stores such metadata
        meta = ObjectMeta(name="pi", namespace="ns", uid="job", generation=1)
    status = STATUS if has_status else None
    read = read_observed(meta, document.get("spec"), status)
    check_errors(read)

    plan = reconcile(read, Observed(), NOW, raw_status=status, settings=how)

    assert not read.errors or plan.actions == ()
    msgspec.json.encode(plan)
    if not read.errors:
        again = reconcile(read, observed_after(plan), NOW, raw_status=plan.status or status, settings=how)
        msgspec.json.encode(again)
