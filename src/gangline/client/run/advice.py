"""What to do about a pod that cannot start, by the kind of its reason. Pure."""

from __future__ import annotations

from typing import Any

from gangline.workloads.pending import (
    GPUS_TAKEN,
    NEVER_FITS,
    START_ERRORS,
    UNSCHEDULABLE,
    PendingReason,
    tries,
)

Obj = dict[str, Any]

GANG_ADVICE = (
    "it starts as soon as there is room; `gangline explain` says what would help, Ctrl-C deletes the job"
)
ADVICE: dict[str, str] = {
    "Incomplete": "it starts once the missing pods are there; a job of fewer pods than its "
    "`schedulingPolicy.minAvailable` never does: lower that; Ctrl-C deletes the job",
    NEVER_FITS: "it can never start here: lower its requests or "
    "`schedulingPolicy.minAvailable`, or run it on a larger cluster with --context; Ctrl-C deletes the job",
    UNSCHEDULABLE: "it starts as soon as there is room; `gangline list` shows what holds it, "
    "Ctrl-C deletes the job",
    GPUS_TAKEN: "it starts as soon as they are free; Ctrl-C deletes the job",
    "ErrImagePull": "check the image's name and tag, and that its registry can be reached from here; "
    "--image NAME=FOLDER serves it from a folder of yours",
    "ImagePullBackOff": "check the image's name and the pull secret of its namespace",
    "InvalidImageName": "correct the image's name in the manifest",
    "CreateContainerConfigError": "the pod names a ConfigMap, Secret or key that does not exist: "
    "add it to the manifest, or apply it now",
}
"""What to do, by the kind of reason for which a pod cannot start."""

_MISSING = "create what is missing, and the pod starts by itself; Ctrl-C deletes the job"


def advice_for(job: Obj, pod: Obj, reason: PendingReason) -> str:
    """Return what to do about a pod that cannot start, empty when nothing is known."""
    if reason.kind in (*START_ERRORS, "CrashLoopBackOff"):
        again = tries(job, pod)
        return f"{again}; Ctrl-C deletes the job" if again else ""
    otherwise = GANG_ADVICE if reason.scope == "gang" else _MISSING if reason.names_missing_object else ""
    return ADVICE.get(reason.kind, otherwise)
