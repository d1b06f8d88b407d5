"""The objects that ``gangline submit`` creates. Pure: flags in, manifests out.

What arena's charts make of the same flags, less their defects; docs/decisions/0006-arena-commands.md has the
differences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from gangline.api.mpijob import LAUNCHER, WORKER
from gangline.api.pod_group import GANGLINE_SCHEDULER
from gangline.api.resources import CONFIG_MAPS, MPIJOBS, PYTORCHJOBS, TFJOBS, Resource
from gangline.api.training.job import CHIEF, EVALUATOR, MASTER, PS
from gangline.api.training.kinds import training_kind
from gangline.cli.submit.submission import RoleFlags, Submission, pairs, read_toleration
from gangline.errors import UserError
from gangline.placement.snapshot import BY_WIRES, MODE_LABEL
from gangline.workloads.job_state import KUBE_QUEUE_ANNOTATION
from gangline.workloads.requests import GPU, RDMA

Obj = dict[str, Any]

_OWN_IMAGE = re.compile(r"(^|/)gangline/base(:|@|$)")  # gangline/base:0.1.0
"""It runs as mpiuser, who may not read root's keys."""


@dataclass(frozen=True, slots=True)
class Role:
    """The replicas of one type.

    Attributes:
        type: as manifests spell it.
        replicas: how many.
        gpus: of each.
        flags: where it differs from the others.
        restart_policy: of its pods.
        has_command: whether it runs the user's command.
        has_devices: whether what each worker asks for is its too.
        has_data: whether the user's data are mounted.
    """

    type: str
    replicas: int
    gpus: int
    flags: RoleFlags
    restart_policy: str = "Never"
    has_command: bool = True
    has_devices: bool = True
    has_data: bool = True


def resource_of(wanted: Submission) -> Resource:
    """Return where the job lives."""
    kind = training_kind(wanted.kind)
    return kind.resource if kind else MPIJOBS


def build_objects(wanted: Submission) -> list[Obj]:
    """Return the objects of a job in the order of their creation.

    Raises:
        UserError: a flag breaks a rule; the message names it with the value found.
    """
    wanted.check()
    return [*_config_maps(wanted), _job(wanted)]


def _roles(wanted: Submission) -> list[Role]:
    """Return the roles that have a replica."""
    same = RoleFlags(cpu=wanted.cpu, memory=wanted.memory)
    gpus, workers = wanted.gpus, wanted.workers
    if wanted.kind == PYTORCHJOBS.kind:  # the master is counted among the workers
        rest = Role(WORKER, workers - 1, gpus, same, restart_policy="OnFailure")
        found = [Role(MASTER, 1, gpus, same), rest]
    elif wanted.kind == TFJOBS.kind:
        of = {type_: wanted.roles.get(type_.lower(), RoleFlags()) for type_ in (PS, WORKER, CHIEF, EVALUATOR)}
        is_alone = not wanted.ps and workers == 1 and not wanted.has_chief and not wanted.has_evaluator
        if is_alone:  # as arena: a single worker is the chief
            return [Role(CHIEF, 1, gpus, of[WORKER])]
        found = [
            Role(PS, wanted.ps, wanted.ps_gpus, of[PS], has_devices=False),
            Role(WORKER, workers, gpus, of[WORKER]),
            Role(CHIEF, int(wanted.has_chief), gpus, of[CHIEF]),
            Role(EVALUATOR, int(wanted.has_evaluator), gpus, of[EVALUATOR]),
        ]
    else:
        launcher = Role(LAUNCHER, 1, 0, RoleFlags(), has_devices=False, has_data=wanted.mounts_on_launcher)
        found = [launcher, Role(WORKER, workers, gpus, same, has_command=False)]
    return [role for role in found if role.replicas]


def _config_maps(wanted: Submission) -> list[Obj]:
    return [
        {
            "apiVersion": "v1",
            "kind": CONFIG_MAPS.kind,
            "metadata": {
                "name": f"{wanted.name}-config-{index}",
                "namespace": wanted.namespace,
                "labels": {"release": wanted.name, "createdBy": wanted.kind},
            },
            "data": files,
        }
        for index, files in enumerate(wanted.config_files.values())
    ]


def _job(wanted: Submission) -> Obj:
    roles = _roles(wanted)
    labels = {
        "app": wanted.kind.lower(),
        "release": wanted.name,
        "createdBy": wanted.kind,
        **pairs("--label", wanted.labels),
    }
    annotations = {
        **pairs("--annotation", wanted.annotations),
        "requestGPUsOfJobOwner": str(sum(role.replicas * role.gpus for role in roles if role.type != PS)),
    }
    if wanted.suspend:
        annotations[KUBE_QUEUE_ANNOTATION] = "true"
    replicas = {role.type: _replica(wanted, role, roles, labels, annotations) for role in roles}
    kind = training_kind(wanted.kind)
    resource = resource_of(wanted)
    spec: Obj = {"runPolicy": _run_policy(wanted, roles)}
    if kind:
        spec[kind.specs_field] = replicas
        optional = {"nprocPerNode": wanted.nproc_per_node, "successPolicy": wanted.success_policy}
        spec |= {name: value for name, value in optional.items() if value}
    else:
        path = {"sshAuthMountPath": "/home/mpiuser/.ssh"} if _OWN_IMAGE.search(wanted.image) else {}
        spec = {"slotsPerWorker": max(wanted.gpus, 1), **path, **spec, "mpiReplicaSpecs": replicas}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }


def _run_policy(wanted: Submission, roles: Sequence[Role]) -> Obj:
    scheduling: Obj = {"minAvailable": _size(roles)} if wanted.gang else {}
    if wanted.priority:
        scheduling["priorityClass"] = wanted.priority
    optional: Obj = {
        "schedulingPolicy": scheduling or None,
        "suspend": wanted.suspend or None,
        "activeDeadlineSeconds": wanted.deadline_s,
        "ttlSecondsAfterFinished": wanted.kept_s,
    }
    policy: Obj = {"backoffLimit": wanted.retry, "cleanPodPolicy": wanted.clean_policy}
    return policy | {name: value for name, value in optional.items() if value is not None}


def _size(roles: Sequence[Role]) -> int:
    return sum(role.replicas for role in roles)


def _replica(wanted: Submission, role: Role, roles: Sequence[Role], labels: Obj, annotations: Obj) -> Obj:
    own = {**labels, "group_name": MPIJOBS.group}
    if wanted.kind == MPIJOBS.kind:
        own |= {"mpi_job_name": wanted.name, "mpi_role_type": role.type.lower()}
    if wanted.gang:
        own["pod-group.scheduling.sigs.k8s.io/name"] = f"{wanted.kind.lower()}-{wanted.name}"
        own["pod-group.scheduling.sigs.k8s.io/min-available"] = str(_size(roles))
    if wanted.gpu_topology and role.gpus:
        count = _size([one for one in roles if one.gpus])
        own |= {"gpu-topology": wanted.name, "gpu-topology-replica": str(count)}
    return {
        "replicas": role.replicas,
        "restartPolicy": role.restart_policy,
        "template": {
            "metadata": {"labels": own, "annotations": annotations},
            "spec": _pod(wanted, role),
        },
    }


def _pod(wanted: Submission, role: Role) -> Obj:
    kind = training_kind(wanted.kind)
    volumes, mounts = _volumes(wanted, has_data=role.has_data)
    env = {**pairs("--env", wanted.env), "workers": str(wanted.workers), "gpus": str(wanted.gpus)}
    has_gpus = role.gpus if kind else wanted.gpus  # a launcher's ranks may need what lies beside the GPUs
    if not has_gpus and not wanted.devices:
        env["NVIDIA_VISIBLE_DEVICES"] = "void"
    container: Obj = {
        "name": kind.container if kind else "mpi",
        "image": role.flags.image or wanted.image,
        "imagePullPolicy": wanted.pull_policy,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": mounts,
    }
    if role.has_command:
        container["command"] = [wanted.shell, "-c", wanted.command]
    if kind and role.flags.port:
        container["ports"] = [{"name": kind.port_name, "containerPort": role.flags.port}]
    if wanted.working_dir:
        container["workingDir"] = wanted.working_dir
    requests = _amounts(wanted, role)
    highest = {"cpu": role.flags.cpu_limit, "memory": role.flags.memory_limit}
    if limits := requests | {name: amount for name, amount in highest.items() if amount}:
        container["resources"] = {"requests": requests, "limits": limits}
    if wanted.rdma:
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    selector = pairs("--selector", role.flags.selectors or wanted.selectors)
    if wanted.gpu_topology and role.gpus:
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
    spec: Obj = {"containers": [container], "volumes": volumes}
    return spec | {name: value for name, value in optional.items() if value}


def _amounts(wanted: Submission, role: Role) -> dict[str, str]:
    """Return what a replica asks for; an MPIJob's launcher asks for nothing."""
    amounts = {"cpu": role.flags.cpu, "memory": role.flags.memory, GPU: str(role.gpus or "")}
    for name, count in pairs("--device", wanted.devices).items() if role.has_devices else ():
        if not count.isdecimal():
            raise UserError(f"--device {name}={count}: write NAME=COUNT, for example amd.com/gpu=1")
        amounts[name] = count
    if wanted.rdma and role.has_devices:
        amounts[RDMA] = "1"
    return {name: amount for name, amount in amounts.items() if amount}


def _volumes(wanted: Submission, *, has_data: bool) -> tuple[list[Obj], list[Obj]]:
    memory = {"medium": "Memory", "sizeLimit": wanted.shared_memory}
    volumes: list[Obj] = [{"name": "dshm", "emptyDir": memory}]
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
