"""Names and labels of everything that belongs to an MPIJob; upstream's, to the letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gangline.api.core import ObjectMeta
from gangline.api.dns_names import is_dns_1035_label
from gangline.api.mpijob import MPIJob
from gangline.api.mpijob_legacy import V1, V1ALPHA1, V1ALPHA2
from gangline.api.resources import MPIJOBS, Resource

OPERATOR_NAME_LABEL: Final = "training.kubeflow.org/operator-name"
JOB_NAME_LABEL: Final = "training.kubeflow.org/job-name"
JOB_ROLE_LABEL: Final = "training.kubeflow.org/job-role"
REPLICA_TYPE_LABEL: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX_LABEL: Final = "training.kubeflow.org/replica-index"
OPERATOR_NAME: Final = "mpi-operator"
ATTEMPT_ANNOTATION: Final = "gangline.dev/attempt"
"""On pods and launcher Jobs of a gang that was started again: the number of restarts before."""
LAUNCHER_ATTEMPT_ANNOTATION: Final = "gangline.dev/launcher-attempt"
"""On a launcher Job that replaces others, as nodes refused their pods: how many."""
LAUNCHER_FAILURES_ANNOTATION: Final = "gangline.dev/launcher-failures"
"""On such a Job: how often the program failed in the Jobs before it."""
LAUNCHER_TEMPLATE_ANNOTATION: Final = "gangline.dev/launcher-template"
"""On a launcher Job: a digest of the template that it was made of."""

_UNDERSCORED: Final = ("group_name", "mpi_job_name", "mpi_role_type")
_DASHED: Final = ("group-name", "mpi-job-name", "mpi-job-role")
_DIGITS_MAX: Final = 10

HOSTFILE_KEY: Final = "hostfile"
DISCOVER_HOSTS_KEY: Final = "discover_hosts.sh"
PRIVATE_KEY: Final = "ssh-privatekey"
PUBLIC_KEY: Final = "ssh-publickey"
SSH_CONFIG_KEY: Final = "ssh-config"
CERTIFICATE_KEY: Final = "agent-certificate"
"""Of the same key, for the rank agent; only where a job has one."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the objects of one job."""

    job: str
    namespace: str

    @classmethod
    def of(cls, job: MPIJob) -> Names:
        """Return the names for a job."""
        return cls(job.metadata.name, job.metadata.namespace)

    @property
    def service(self) -> str:
        """The headless Service, also the pods' subdomain.

        A Service's name must begin with a letter, a job's need not: `1-foo` gets `mpi-1-foo`.
        """
        return self.job if is_dns_1035_label(self.job) else f"mpi-{self.job}"

    @property
    def config_map(self) -> str:
        """The ConfigMap with the host list."""
        return f"{self.job}-config"

    @property
    def secret(self) -> str:
        """The Secret with the ssh key pair."""
        return f"{self.job}-ssh"

    @property
    def launcher(self) -> str:
        """The launcher Job, and its pod's host name."""
        return f"{self.job}-launcher"

    def worker(self, index: int) -> str:
        """Return the name of one worker pod."""
        return f"{self.job}-worker-{index}"

    def worker_index(self, pod: str) -> int | None:
        """Return the index in a worker pod's name; None for any other name."""
        head, digits = f"{self.job}-worker-", pod.removeprefix(f"{self.job}-worker-")
        if not (pod.startswith(head) and digits.isascii() and digits.isdigit()):
            return None
        return int(digits) if str(int(digits)) == digits else None

    def host(self, pod: str, cluster_domain: str) -> str:
        """Return the host name by which the pods of the job find a pod."""
        name = f"{pod}.{self.service}.{self.namespace}.svc"
        return f"{name}.{cluster_domain}" if cluster_domain else name


def selector_labels(job: str) -> dict[str, str]:
    """Return the labels that all pods of a job carry and its Service selects."""
    return {OPERATOR_NAME_LABEL: OPERATOR_NAME, JOB_NAME_LABEL: job}


def role_labels(job: str, role: str) -> dict[str, str]:
    """Return the labels of the pods of one role: ``launcher`` or ``worker``."""
    return {**selector_labels(job), JOB_ROLE_LABEL: role}


def published_labels(job: MPIJob, role: str) -> dict[str, str]:
    """Return the labels that guides of a job's version find its pods by; those of v2beta1 are our own.

    Source: the MPI operator 0.1 and 0.2 (v1alpha1, v1alpha2), 0.3 (v1).
    """
    words = {V1ALPHA1: _UNDERSCORED, V1ALPHA2: _UNDERSCORED, V1: _DASHED}.get(job.version, ())
    return dict(zip(words, (MPIJOBS.group, job.metadata.name, role), strict=False))


def child_metadata(
    owner: ObjectMeta, name: str, labels: dict[str, str], kind: Resource = MPIJOBS
) -> dict[str, Any]:
    """Return the metadata of an object that the job controls and takes with it when it goes."""
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": labels,
        "ownerReferences": [
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": owner.name,
                "uid": owner.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def count_in(meta: ObjectMeta, annotation: str) -> int:
    """Return the number in an annotation; 0 where there is none."""
    text = meta.annotations.get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX else 0


def mark_count(metadata: dict[str, Any], annotation: str, count: int) -> None:
    """Note a number on an object that is to be made, in place; 0 leaves no mark."""
    if count:
        metadata["annotations"] = {**metadata.get("annotations", {}), annotation: str(count)}


def other_child_labels(job: str) -> dict[str, str]:
    """Return the labels of children that are no pods.

    Upstream has only ``app``; the other two let the operator watch its own objects instead of every
    Secret of the cluster.
    """
    return {"app": job, **selector_labels(job)}
