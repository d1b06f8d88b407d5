"""The JobSet of a TrainJob whose runtime asks for what only JobSet does. Values in, an object out.

It is what Kubeflow Trainer (2.3.0) would write, with what JobSet's webhook (0.11.1) fills in: the template of
the runtime, the TrainJob's changes of it, and the places that torchrun or mpirun are told.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from gangline.api.resources import JOB_SETS, TRAINJOBS
from gangline.api.trainer.job import LAUNCHER, NODE
from gangline.api.training.job import TrainingJob
from gangline.api.training.kinds import TRAINJOB
from gangline.jobs.gang import Dialect, join_gang
from gangline.jobs.names import JOB_ROLE_LABEL, REPLICA_TYPE_LABEL, child_metadata
from gangline.jobs.pods import without_nulls
from gangline.jobs.training.mpi_node import mount_mpi, mpi_environment
from gangline.jobs.training.replicas import job_labels
from gangline.jobs.training.status_access import mount_status_access
from gangline.jobs.training.torch_node import RANK, torch_environment

Obj = dict[str, Any]

DIGEST_ANNOTATION: Final = "gangline.dev/job-set-template"
"""On a JobSet: a digest of all that it was made of, but for suspension."""
_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_OURS: Final = ("suspend", "ttlSecondsAfterFinished")
"""Fields that follow the TrainJob: an end has to be written down before what tells of it goes."""


def build_job_set(job: TrainingJob, template: Obj, domain: str, dialect: Dialect | None) -> Obj:
    """Return the JobSet of a TrainJob that is not suspended.

    Args:
        job: the TrainJob and its runtime, read.
        template: the runtime's, patches merged in: ``metadata`` and ``spec`` of a JobSet.
        domain: appended to host names; usually empty.
        dialect: of the scheduler that places the gang; None places pods one by one.
    """
    template = without_nulls(template)
    gang = _Gang(dialect, is_whole=starts_whole(job, template, dialect))
    given = {key: value for key, value in (template.get("spec") or {}).items() if key not in _OURS}
    spec = {
        "successPolicy": {"operator": "All"},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        **given,
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            **(given.get("network") or {}),
        },
        "replicatedJobs": [_replicated(job, one, domain, gang) for one in given["replicatedJobs"]],
        "suspend": False,
    }
    if rules := (given.get("failurePolicy") or {}).get("rules"):
        named = [{"name": f"failurePolicyRule{index}", **rule} for index, rule in enumerate(rules)]
        spec["failurePolicy"] = {**given["failurePolicy"], "rules": named}
    of_runtime = template.get("metadata") or {}
    name = job.metadata.name
    labels = {**(of_runtime.get("labels") or {}), **job_labels(TRAINJOB, name)}
    metadata = child_metadata(job.metadata, name, labels, TRAINJOBS)
    digest = blake2b(msgspec.json.encode((labels, spec), order="sorted"), digest_size=8).hexdigest()
    metadata["annotations"] = {**(of_runtime.get("annotations") or {}), DIGEST_ANNOTATION: digest}
    return {"apiVersion": JOB_SETS.api_version, "kind": JOB_SETS.kind, "metadata": metadata, "spec": spec}


def starts_whole(job: TrainingJob, template: Obj, dialect: Dialect | None) -> bool:
    """Whether one group waits for all pods: all are made at once, but for those that end before.

    JobSet's definition drops the field by which pods name a group of Kubernetes' own.
    """
    policy = ((template.get("spec") or {}).get("startupPolicy") or {}).get("startupPolicyOrder")
    states = {state for needs in job.order.after.values() for state in needs.values()}
    return dialect is not None and not dialect.is_kubernetes and policy != "InOrder" and "Ready" not in states


class _Gang(NamedTuple):
    """Who places pods, and whether all of them at once."""

    dialect: Dialect | None
    is_whole: bool

    def take(self, template: Obj, group: str) -> None:
        """Have pods of a template be placed so, in place; they keep a scheduler that they name."""
        if self.dialect is None:
            return
        spec = template["spec"]
        own = spec.get("schedulerName")
        if self.is_whole:
            join_gang(template, group, self.dialect)
        elif not self.dialect.is_kubernetes:
            spec["schedulerName"] = self.dialect.scheduler
        if own:
            spec["schedulerName"] = own


def _replicated(job: TrainingJob, given: Obj, domain: str, gang: _Gang) -> Obj:
    type_, template = str(given["name"]), given.get("template") or {}
    spec = template.get("spec") or {}
    pods = job.count(type_) // max(given.get("replicas", 1), 1) or 1
    completions = pods if type_ == NODE else spec.get("completions", pods)
    spec = {
        "completionMode": "Indexed",
        **spec,
        "parallelism": pods,
        "completions": completions,
        "template": _pods(job, type_, spec.get("template") or {}, domain, gang),
    }
    return {"replicas": 1, "groupName": "default", **given, "template": {**template, "spec": spec}}


def _pods(job: TrainingJob, type_: str, given: Obj, domain: str, gang: _Gang) -> Obj:
    """Return the pod template of a replicated job, with the labels by which the job's pods are found."""
    template: Obj = without_nulls(job.roles[type_].template)
    metadata = template["metadata"]
    found_by = {**job_labels(TRAINJOB, job.metadata.name), REPLICA_TYPE_LABEL: type_.lower()}
    if type_ == (LAUNCHER if job.mpi else NODE):
        found_by[JOB_ROLE_LABEL] = "master"
    metadata["labels"] = {**(metadata.get("labels") or {}), **found_by}
    spec = template["spec"]
    spec["restartPolicy"] = (given.get("spec") or {}).get("restartPolicy") or "OnFailure"
    told = torch_environment(job, type_, 0, domain) | mpi_environment(job, type_)
    variables: list[Obj] = [{"name": name, "value": value} for name, value in told.items()]
    for variable in variables:
        if variable["name"] == RANK:  # one template for all pods
            field = f"metadata.annotations['{_COMPLETION_INDEX}']"
            del variable["value"]
            variable["valueFrom"] = {"fieldRef": {"fieldPath": field}}
    for container in [one for one in spec["containers"] if one.get("name") == NODE][:1] if told else ():
        container["env"] = [*(container.get("env") or []), *variables]
    if type_ not in job.order.preludes:
        gang.take(template, job.metadata.name)
    return mount_status_access(mount_mpi(template, job, type_), job)
