"""Defaults of an MPIJob v2beta1: what an absent field means. Nothing is written back to the object."""

from __future__ import annotations

from msgspec.structs import replace

from gangline.api.mpijob import (
    CREATION_POLICIES,
    DEFAULT_SSH_MOUNT_PATH,
    IMPLEMENTATIONS,
    LAUNCHER,
    WORKER,
    MPIJob,
    ReplicaSpec,
)

_REPLICAS = {LAUNCHER: 1, WORKER: 0}
_RESTART_POLICY = {LAUNCHER: "OnFailure", WORKER: "Never"}


def apply_defaults(job: MPIJob) -> MPIJob:
    """Return the job with every absent field filled in.

    A Worker role without ``replicas`` gets 0, which validation then refuses: that is the published behaviour.
    Source: mpi-operator SetDefaults_MPIJob.
    """
    spec = job.spec
    policy = spec.run_policy
    roles = spec.mpi_replica_specs
    return replace(
        job,
        spec=replace(
            spec,
            slots_per_worker=1 if spec.slots_per_worker is None else spec.slots_per_worker,
            run_policy=replace(policy, clean_pod_policy="None")
            if policy.clean_pod_policy is None
            else policy,
            mpi_replica_specs=None
            if roles is None
            else {role: _default_role(role, roles[role]) for role in roles},
            ssh_auth_mount_path=spec.ssh_auth_mount_path or DEFAULT_SSH_MOUNT_PATH,
            launcher_creation_policy=spec.launcher_creation_policy or CREATION_POLICIES[0],
            mpi_implementation=spec.mpi_implementation or IMPLEMENTATIONS[0],
        ),
    )


def _default_role(role: str, spec: ReplicaSpec) -> ReplicaSpec:
    return replace(
        spec,
        replicas=_REPLICAS.get(role) if spec.replicas is None else spec.replicas,
        restart_policy=spec.restart_policy or _RESTART_POLICY.get(role, ""),
    )
