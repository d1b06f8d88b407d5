"""The objects that ``gangline submit mpijob`` creates. Pure: flags in, manifests out.

What arena's chart makes of the same flags, less its defects; docs/decisions/0006-arena-commands.md has the
differences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from gangline.api.dns_names import is_dns_1123_label
from gangline.api.pod_group import GANGLINE_SCHEDULER
from gangline.api.resources import CONFIG_MAPS, MPIJOBS
from gangline.errors import UserError
from gangline.placement.snapshot import BY_WIRES, MODE_LABEL
from gangline.units import parse_quantity
from gangline.workloads.job_state import KUBE_QUEUE_ANNOTATION
from gangline.workloads.requests import GPU, RDMA

Obj = dict[str, Any]

NAME_CHARS_MAX = 49
"""As arena: names of pods are made of it."""

SHM_SIZE = "2Gi"
OWNER_GPUS_ANNOTATION = "requestGPUsOfJobOwner"
_TOLERATION = re.compile(
    r"(?P<key>[^=:,\s]+)(=(?P<value>[^:,]*))?:(?P<effect>[A-Za-z]*)(,(?P<operator>Exists|Equal))?$"
)
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Submission:
    """What was written on the command line, checked only for its form.

    Attributes:
        gpus: of each worker.
        devices: ``NAME=COUNT`` of other extended resources.
        claims: ``CLAIM:PATH``. host_folders: ``HOST[:CONTAINER]``.
        config_files: container folder -> file name -> content.
        suspend: kube-queue starts the job.
    """

    name: str
    namespace: str
    image: str
    command: str
    gpus: int = 0
    workers: int = 1
    devices: tuple[str, ...] = ()
    retry: int = 0
    working_dir: str = ""
    env: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    host_folders: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    config_files: dict[str, dict[str, str]] = field(default_factory=dict)
    selectors: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    pull_policy: str = "Always"
    shell: str = "sh"
    scheduler: str = ""
    priority: str = ""
    suspend: bool = False
    gang: bool = False
    gpu_topology: bool = False
    rdma: bool = False
    host_network: bool = False
    host_ipc: bool = False
    host_pid: bool = False
    cpu: str = ""
    memory: str = ""
    mounts_on_launcher: bool = False
    clean_policy: str = "All"


_OWN_IMAGE = re.compile(r"(^|/)gangline/base(:|@|$)")
"""It runs as mpiuser, who may not read root's keys."""


def build_objects(wanted: Submission) -> list[Obj]:
    """Return the objects of a job in the order of their creation.

    Raises:
        UserError: a flag breaks a rule; the message names it with the value found.
    """
    _check(wanted)
    return [*_config_maps(wanted), _mpijob(wanted)]


def _check(wanted: Submission) -> None:
    if not is_dns_1123_label(wanted.name) or len(wanted.name) > NAME_CHARS_MAX:
        raise UserError(
            f"--name must be lower-case letters, digits and inner dashes, at most {NAME_CHARS_MAX} "
            f"(found `{wanted.name}`)"
        )
    for flag, count, least in (("--workers", wanted.workers, 1), ("--gpus", wanted.gpus, 0)):
        if count < least:
            raise UserError(f"{flag} must be at least {least} (found `{count}`)")
    if wanted.gpu_topology and not wanted.gpus:
        raise UserError("--gputopology chooses GPUs, and --gpus is 0", hint="add --gpus=1")
    for flag, text in (("--cpu", wanted.cpu), ("--memory", wanted.memory)):
        try:
            parse_quantity(text or "1")
        except ValueError:
            raise UserError(f"{flag} must be a quantity such as `4` or `16Gi` (found `{text}`)") from None


def pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a table.

    Raises:
        UserError: one is of another form.
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"{flag} {text}: write KEY=VALUE")
        found[key] = value
    return found


def read_toleration(text: str) -> Obj:
    """Return a toleration of ``KEY=VALUE:EFFECT,OPERATOR``, or of ``all``.

    Raises:
        UserError: it is of another form.

    Example:
        >>> read_toleration("gpu=yes:NoSchedule,Equal")["value"]
        'yes'
    """
    if text == "all":
        return {"operator": "Exists"}
    match = _TOLERATION.fullmatch(text)
    if match is None or match["effect"] not in _EFFECTS:
        raise UserError(
            f"--toleration {text}: cannot be read",
            hint="write KEY=VALUE:EFFECT,OPERATOR, for example gpu=yes:NoSchedule,Equal, or `all`",
        )
    operator = match["operator"] or ("Equal" if match["value"] is not None else "Exists")
    found = {"key": match["key"], "operator": operator, "effect": match["effect"]}
    if operator == "Equal":
        found["value"] = match["value"] or ""
    return {key: value for key, value in found.items() if value or key == "value"}


def _config_maps(wanted: Submission) -> list[Obj]:
    return [
        {
            "apiVersion": "v1",
            "kind": CONFIG_MAPS.kind,
            "metadata": {
                "name": f"{wanted.name}-config-{index}",
                "namespace": wanted.namespace,
                "labels": {"release": wanted.name, "createdBy": MPIJOBS.kind},
            },
            "data": files,
        }
        for index, files in enumerate(wanted.config_files.values())
    ]


def _mpijob(wanted: Submission) -> Obj:
    labels = {
        "app": "mpijob",
        "release": wanted.name,
        "createdBy": MPIJOBS.kind,
        **pairs("--label", wanted.labels),
    }
    annotations = {
        **pairs("--annotation", wanted.annotations),
        OWNER_GPUS_ANNOTATION: str(wanted.workers * wanted.gpus),
    }
    if wanted.suspend:
        annotations[KUBE_QUEUE_ANNOTATION] = "true"
    policy: Obj = {"backoffLimit": wanted.retry, "cleanPodPolicy": wanted.clean_policy}
    scheduling: Obj = {"minAvailable": wanted.workers + 1} if wanted.gang else {}
    if wanted.priority:
        scheduling["priorityClass"] = wanted.priority
    if scheduling:
        policy["schedulingPolicy"] = scheduling
    if wanted.suspend:
        policy["suspend"] = True
    return {
        "apiVersion": MPIJOBS.api_version,
        "kind": MPIJOBS.kind,
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "slotsPerWorker": max(wanted.gpus, 1),
            **({"sshAuthMountPath": "/home/mpiuser/.ssh"} if _OWN_IMAGE.search(wanted.image) else {}),
            "runPolicy": policy,
            "mpiReplicaSpecs": {
                "Launcher": _replica(wanted, labels, annotations, is_launcher=True),
                "Worker": _replica(wanted, labels, annotations, is_launcher=False),
            },
        },
    }


def _replica(wanted: Submission, labels: Obj, annotations: Obj, *, is_launcher: bool) -> Obj:
    role = "launcher" if is_launcher else "worker"
    own = {**labels, "group_name": MPIJOBS.group, "mpi_job_name": wanted.name, "mpi_role_type": role}
    if wanted.gang:
        own["pod-group.scheduling.sigs.k8s.io/name"] = f"mpijob-{wanted.name}"
        own["pod-group.scheduling.sigs.k8s.io/min-available"] = str(wanted.workers + 1)
    if wanted.gpu_topology and not is_launcher:
        own |= {"gpu-topology": wanted.name, "gpu-topology-replica": str(wanted.workers)}
    return {
        "replicas": 1 if is_launcher else wanted.workers,
        "restartPolicy": "Never",
        "template": {
            "metadata": {"labels": own, "annotations": annotations},
            "spec": _pod(wanted, is_launcher=is_launcher),
        },
    }


def _pod(wanted: Submission, *, is_launcher: bool) -> Obj:
    has_data = not is_launcher or wanted.mounts_on_launcher
    volumes, mounts = _volumes(wanted, has_data=has_data)
    env = {**pairs("--env", wanted.env), "workers": str(wanted.workers), "gpus": str(wanted.gpus)}
    if not wanted.gpus and not wanted.devices:
        env["NVIDIA_VISIBLE_DEVICES"] = "void"
    container: Obj = {
        "name": "mpi",
        "image": wanted.image,
        "imagePullPolicy": wanted.pull_policy,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": mounts,
    }
    if is_launcher:
        container["command"] = [wanted.shell, "-c", wanted.command]
    if wanted.working_dir:
        container["workingDir"] = wanted.working_dir
    amounts = {} if is_launcher else _amounts(wanted)
    if amounts:
        container["resources"] = {"requests": amounts, "limits": amounts}
    if wanted.rdma:
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    spec: Obj = {"containers": [container], "volumes": volumes}
    selector = pairs("--selector", wanted.selectors)
    if wanted.gpu_topology and not is_launcher:
        selector[MODE_LABEL] = BY_WIRES
    optional: Obj = {
        "nodeSelector": selector,
        "tolerations": [read_toleration(text) for text in wanted.tolerations],
        "imagePullSecrets": [{"name": name} for name in wanted.pull_secrets],
        "schedulerName": wanted.scheduler or (GANGLINE_SCHEDULER if wanted.gang else ""),
        "priorityClassName": wanted.priority,
        "hostNetwork": wanted.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if wanted.host_network else "",
        "hostIPC": wanted.host_ipc,
        "hostPID": wanted.host_pid,
    }
    return spec | {name: value for name, value in optional.items() if value}


def _amounts(wanted: Submission) -> dict[str, str]:
    """Return what a worker asks for; the launcher asks for nothing."""
    amounts = {"cpu": wanted.cpu, "memory": wanted.memory, GPU: str(wanted.gpus or "")}
    for name, count in pairs("--device", wanted.devices).items():
        if not count.isdecimal():
            raise UserError(f"--device {name}={count}: write NAME=COUNT, for example amd.com/gpu=1")
        amounts[name] = count
    if wanted.rdma:
        amounts[RDMA] = "1"
    return {name: amount for name, amount in amounts.items() if amount}


def _volumes(wanted: Submission, *, has_data: bool) -> tuple[list[Obj], list[Obj]]:
    volumes: list[Obj] = [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM_SIZE}}]
    mounts: list[Obj] = [{"name": "dshm", "mountPath": "/dev/shm"}]
    for index, folder in enumerate(wanted.config_files):
        name = f"config-{index}"
        volumes.append({"name": name, "configMap": {"name": f"{wanted.name}-config-{index}"}})
        mounts.append({"name": name, "mountPath": folder})
    if not has_data:
        return volumes, mounts
    for index, text in enumerate(wanted.claims):
        claim, colon, path = text.partition(":")
        if not claim or not colon or not PurePosixPath(path).is_absolute():
            raise UserError(f"--data {text}: write CLAIM:PATH with an absolute path")
        volumes.append({"name": f"data-{index}", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": f"data-{index}", "mountPath": path})
    for index, text in enumerate(wanted.host_folders):
        host, _, path = text.partition(":")
        if not PurePosixPath(host).is_absolute() or not PurePosixPath(path or host).is_absolute():
            raise UserError(f"--data-dir {text}: write HOST[:CONTAINER] with absolute paths")
        volumes.append({"name": f"training-data-{index}", "hostPath": {"path": host}})
        mounts.append({"name": f"training-data-{index}", "mountPath": path or host})
    return volumes, mounts
