"""The pods of an MPIJob: worker pods, and the launcher's Job with its template."""

from __future__ import annotations

from typing import Any, Final

from gangline.api.mpijob import DEFAULT_SSH_MOUNT_PATH, LAUNCHER, WORKER, MPIJob, ReplicaSpec, ReplicaStatus
from gangline.api.mpijob_validation import CONFIG_MOUNT_PATH, CONFIG_VOLUME, SSH_VOLUME
from gangline.jobs.environment import ROLE_VARIABLE, launcher_environment
from gangline.jobs.gang import Dialect, join_gang
from gangline.jobs.launcher_edit import template_digest
from gangline.jobs.launcher_replacement import backoff_limit_of
from gangline.jobs.names import (
    ATTEMPT_ANNOTATION,
    DISCOVER_HOSTS_KEY,
    HOSTFILE_KEY,
    LAUNCHER_ATTEMPT_ANNOTATION,
    LAUNCHER_FAILURES_ANNOTATION,
    LAUNCHER_TEMPLATE_ANNOTATION,
    PRIVATE_KEY,
    PUBLIC_KEY,
    REPLICA_INDEX_LABEL,
    SSH_CONFIG_KEY,
    Names,
    child_metadata,
    mark_count,
    other_child_labels,
    published_labels,
    role_labels,
)
from gangline.jobs.remote_access import KUBEXEC_KEY, add_agent, serve_agent

Object = dict[str, Any]

SSHD_COMMAND: Final = ("/usr/sbin/sshd", "-De")
IDLE_COMMAND: Final = ("sleep", "365d")
"""Of workers that run no ssh server: an image of an old job need not have one."""
_KUBERNETES_DOMAIN: Final = "cluster.local"


def build_worker(job: MPIJob, index: int, cluster_domain: str = "", dialect: Dialect | None = None) -> Object:
    """Return worker pod number ``index``. Needs a Worker role.

    Args:
        job: the job.
        index: of the worker.
        cluster_domain: domain of host names; usually empty.
        dialect: of the scheduler that places the gang; None places pods one by one.
    """
    names = Names.of(job)
    spec = job.spec.replica(WORKER)
    assert spec is not None
    template = _template(job, spec, "worker")
    # With ranks on the launcher too, the launcher has index 0.
    label = index + 1 if job.spec.run_launcher_as_worker else index
    template["metadata"]["labels"][REPLICA_INDEX_LABEL] = str(label)
    pod = template["spec"]
    name = names.worker(index)
    pod["hostname"] = name
    # The search domain lets Intel MPI and MPICH find the launcher by its bare host name.
    config = pod["dnsConfig"] = pod.get("dnsConfig") or {}
    domain = f"{names.service}.{names.namespace}.svc.{cluster_domain or _KUBERNETES_DOMAIN}"
    config["searches"] = [*(config.get("searches") or []), domain]
    main = pod["containers"][0]
    if not main.get("command") and not main.get("args"):
        main["command"] = list(IDLE_COMMAND if job.needs_exec else SSHD_COMMAND)
    main["env"] = [*(main.get("env") or []), {"name": ROLE_VARIABLE, "value": "worker"}]
    if job.needs_exec:
        _mount_config(job, pod)
    if job.has_agent:
        serve_agent(main)
        add_agent(job, pod)
    join_gang(template, names.job, dialect)
    metadata = child_metadata(job.metadata, name, template["metadata"]["labels"])
    if template["metadata"].get("annotations"):
        metadata["annotations"] = template["metadata"]["annotations"]
    mark_count(metadata, ATTEMPT_ANNOTATION, job.status.restarts)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


_NOT_ITS_FAULT: Object = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
}
"""A launcher that is taken away with its gang does not count against the backoff limit. Kubernetes
allows the rule only for pods that are never restarted in place."""


def build_launcher(job: MPIJob, dialect: Dialect | None = None) -> Object:
    """Return the batch/v1 Job that runs the launcher; it is suspended when the MPIJob is.

    Its time to live is set once its end is in the MPIJob's status, not here.
    """
    names = Names.of(job)
    policy = job.spec.run_policy
    replaces = job.status.launcher_replacements > 0
    failures = job.status.replica_statuses.get(LAUNCHER, ReplicaStatus()).failed if replaces else 0
    limits = {
        "activeDeadlineSeconds": policy.active_deadline_seconds,
        "backoffLimit": max(backoff_limit_of(job) - failures, 0) if failures else policy.backoff_limit,
    }
    spec: Object = {name: value for name, value in limits.items() if value is not None}
    # A launcher that is still ending must not be doubled.
    spec["podReplacementPolicy"] = "Failed"
    if policy.suspend:
        spec["suspend"] = True
    spec["template"] = build_launcher_template(job, dialect)
    if dialect is not None and spec["template"]["spec"].get("restartPolicy") == "Never":
        spec["podFailurePolicy"] = _NOT_ITS_FAULT
    metadata = child_metadata(job.metadata, names.launcher, other_child_labels(names.job))
    mark_count(metadata, ATTEMPT_ANNOTATION, job.status.restarts)
    mark_count(metadata, LAUNCHER_ATTEMPT_ANNOTATION, job.status.launcher_replacements)
    mark_count(metadata, LAUNCHER_FAILURES_ANNOTATION, failures)
    metadata.setdefault("annotations", {})[LAUNCHER_TEMPLATE_ANNOTATION] = template_digest(job)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": spec,
    }


def build_launcher_template(job: MPIJob, dialect: Dialect | None = None) -> Object:
    """Return the pod template of the launcher. Needs a Launcher role."""
    names = Names.of(job)
    spec = job.spec.replica(LAUNCHER)
    assert spec is not None
    template = _template(job, spec, "launcher")
    if job.spec.run_launcher_as_worker:
        template["metadata"]["labels"][REPLICA_INDEX_LABEL] = "0"
    pod = template["spec"]
    pod["hostname"] = names.launcher
    _mount_config(job, pod)
    if job.has_agent:
        add_agent(job, pod)
    main = pod["containers"][0]
    user = main.get("env") or []
    main["env"] = [*user, *launcher_environment(job, user)]
    join_gang(template, names.job, dialect)
    return template


def _mount_config(job: MPIJob, pod: Object) -> None:
    """Show the host lists in the first container."""
    items = [
        {"key": HOSTFILE_KEY, "path": HOSTFILE_KEY, "mode": 0o444},
        {"key": DISCOVER_HOSTS_KEY, "path": DISCOVER_HOSTS_KEY, "mode": 0o555},
    ]
    if job.needs_exec:
        items.append({"key": KUBEXEC_KEY, "path": KUBEXEC_KEY, "mode": 0o555})
    source = {"name": Names.of(job).config_map, "items": items}
    pod["volumes"].append({"name": CONFIG_VOLUME, "configMap": source})
    pod["containers"][0]["volumeMounts"].append({"name": CONFIG_VOLUME, "mountPath": CONFIG_MOUNT_PATH})


def _template(job: MPIJob, spec: ReplicaSpec, role: str) -> Object:
    """What both roles share: labels, subdomain, restart policy, the ssh key. Other metadata is dropped."""
    names = Names.of(job)
    given = without_nulls(spec.template.get("metadata") or {})
    labels = {**(given.get("labels") or {}), **published_labels(job, role), **role_labels(names.job, role)}
    metadata: Object = {"labels": labels}
    if given.get("annotations"):
        metadata["annotations"] = dict(given["annotations"])
    pod: Object = without_nulls(spec.template["spec"])
    pod["subdomain"] = names.service
    pod["restartPolicy"] = spec.restart_policy
    if pod.get("hostNetwork"):
        pod["dnsPolicy"] = "ClusterFirstWithHostNet"
    secret: Object = {
        "secretName": names.secret,
        "items": [
            {"key": PRIVATE_KEY, "path": "id_rsa"},
            {"key": PUBLIC_KEY, "path": "id_rsa.pub"},
            {"key": PUBLIC_KEY, "path": "authorized_keys"},
            {"key": SSH_CONFIG_KEY, "path": "config", "mode": 0o644},
        ],
    }
    if job.spec.ssh_auth_mount_path == DEFAULT_SSH_MOUNT_PATH:
        secret["defaultMode"] = 0o600  # root's own keys: ssh insists on it
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": SSH_VOLUME, "secret": secret}]
    main = pod["containers"][0]
    mount = {"name": SSH_VOLUME, "mountPath": job.spec.ssh_auth_mount_path}
    main["volumeMounts"] = [*(main.get("volumeMounts") or []), mount]
    return {"metadata": metadata, "spec": pod}


def without_nulls(value: Any) -> Any:
    """Return a deep copy in which null fields are absent, as the API takes them."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def resume_patch(job: MPIJob, template: Object, dialect: Dialect | None = None) -> Object:
    """Return the merge patch that releases a suspended launcher with the scheduling directives of now.

    Labels and annotations are added, node selector, tolerations and scheduling gates replaced: what
    Kubernetes lets change while a Job is suspended.

    Args:
        job: the MPIJob.
        template: the pod template that the launcher Job has.
        dialect: of the scheduler that places the gang.
    """
    wanted = build_launcher_template(job, dialect)
    selector = wanted["spec"].get("nodeSelector") or {}
    removed = dict.fromkeys((template.get("spec") or {}).get("nodeSelector") or {})
    node_selector = removed | selector
    metadata = {key: value for key, value in wanted["metadata"].items() if value}
    return {
        "spec": {
            "suspend": False,
            "template": {
                "metadata": metadata,
                "spec": {
                    "nodeSelector": node_selector or None,
                    "tolerations": wanted["spec"].get("tolerations"),
                    "schedulingGates": wanted["spec"].get("schedulingGates"),
                },
            },
        }
    }
