"""The replicated jobs of a runtime as roles of a TrainJob: pods, order, and what is not done here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gangline.api.trainer.job import (
    DATASET_STEP,
    LAUNCHER,
    MODEL_STEP,
    NODE,
    POLICIES,
    POLICIES_SERVED,
    STEP_LABEL,
    TRAINER_STEP,
    InitializerStep,
    TrainJobSpec,
)
from gangline.api.training.job import MpiLaunch, RoleOrder, TrainingReplicaSpec
from gangline.errors import FieldError

Obj = dict[str, Any]

AT: Final = "runtime.spec.template.spec"
STATES: Final = ("Ready", "Complete")
OPEN_MPI: Final = "OpenMPI"
_SERVED: Final = {
    "": {"replicatedJobs", "network", "successPolicy", "failurePolicy", "suspend"},
    "network": {"enableDNSHostnames", "publishNotReadyAddresses"},
    "failurePolicy": {"maxRestarts"},
    "successPolicy": {"operator", "targetReplicatedJobs"},
}
"""Fields of a JobSet's spec that are done here, by the field around them."""
_SERVED_OF_JOB: Final = {"name", "replicas", "template", "groupName", "dependsOn"}
_SERVED_OF_BATCH_JOB: Final = {"parallelism", "backoffLimit", "template"}
_USUAL_OF_BATCH_JOB: Final = {"completionMode": "Indexed", "suspend": False}
_STORAGE_VARIABLE: Final = "STORAGE_URI"


def not_served(policy: Obj, jobset: Obj) -> Iterator[FieldError]:
    """Yield what a runtime asks for that nothing here does."""
    for name in POLICIES:
        if policy.get(name) is not None and name not in POLICIES_SERVED:
            rule = f"is not served; {', '.join(POLICIES_SERVED)} are"
            yield FieldError("NotSupported", f"runtime.spec.mlPolicy.{name}", rule)
    mpi = (policy.get("mpi") or {}).get("mpiImplementation") or OPEN_MPI
    if mpi != OPEN_MPI:
        at = "runtime.spec.mlPolicy.mpi.mpiImplementation"
        yield FieldError("NotSupported", at, f"must be {OPEN_MPI}", repr(mpi))
    if not any(policy.get(name) is not None for name in POLICIES_SERVED):
        return
    for index, job in enumerate(jobset.get("replicatedJobs") or []):
        if job.get("name") == NODE and _replicas(job) != 1:
            rule = "must be 1: spec.trainer.numNodes says how many pods train, each told its rank among them"
            yield FieldError("Invalid", f"{AT}.replicatedJobs[{index}].replicas", rule, repr(job["replicas"]))


def job_set_fields(jobset: Obj) -> Iterator[str]:
    """Yield the fields of a runtime that only JobSet does."""
    for field, served in _SERVED.items():
        part = jobset.get(field) if field else jobset
        for name, value in (part or {}).items():
            if value is not None and name not in served:
                yield ".".join(filter(None, (AT, field, name)))
    for index, job in enumerate(jobset.get("replicatedJobs") or []):
        at = f"{AT}.replicatedJobs[{index}]"
        if _replicas(job) != 1:
            yield f"{at}.replicas"
        for name, value in job.items():
            if value is not None and name not in _SERVED_OF_JOB:
                yield f"{at}.{name}"
        spec = (job.get("template") or {}).get("spec") or {}
        as_usual = {**_USUAL_OF_BATCH_JOB, "completions": spec.get("parallelism") or 1}
        for name, value in spec.items():
            is_usual = value is None or name in _SERVED_OF_BATCH_JOB or as_usual.get(name) == value
            if not is_usual and not (name == "completions" and job.get("name") == NODE):
                yield f"{at}.template.spec.{name}"


def _replicas(job: Obj) -> int:
    count = job.get("replicas")
    return 1 if count is None else int(count)


def read_order(jobset: Obj) -> tuple[RoleOrder, list[FieldError]]:
    """Return in which order the replicated jobs start and which of them end the whole, with what is wrong."""
    errors, known = list[FieldError](), set[str]()
    after: dict[str, dict[str, str]] = {}
    for index, job in enumerate(jobset.get("replicatedJobs") or []):
        for number, need in enumerate(job.get("dependsOn") or []):
            at = f"{AT}.replicatedJobs[{index}].dependsOn[{number}]"
            name, state = str(need.get("name")), str(need.get("status"))
            if name not in known:
                errors.append(FieldError("Invalid", f"{at}.name", "must name a job before it", repr(name)))
            elif state not in STATES:
                errors.append(FieldError("NotSupported", f"{at}.status", f"must be {STATES}", repr(state)))
            else:
                after.setdefault(str(job.get("name")), {})[name] = state
        known.add(str(job.get("name")))
    policy = jobset.get("successPolicy") or {}
    deciding = tuple(map(str, policy.get("targetReplicatedJobs") or ()))
    for index, name in enumerate(deciding):
        if name not in known:
            at = f"{AT}.successPolicy.targetReplicatedJobs[{index}]"
            errors.append(FieldError("Invalid", at, "must name a replicated job", repr(name)))
    return RoleOrder(after=after, deciding=deciding, is_any=policy.get("operator") == "Any"), errors


def read_roles(
    spec: TrainJobSpec, policy: Obj, jobset: Obj
) -> tuple[dict[str, TrainingReplicaSpec], list[FieldError]]:
    """Return the pods of each replicated job as the TrainJob has them, by name, with what is wrong."""
    jobs = jobset.get("replicatedJobs") or []
    names = {str(job.get("name")) for job in jobs}
    count, errors = spec.trainer.num_nodes or policy.get("numNodes") or 1, []
    has_launcher = "mpi" in policy and LAUNCHER in names
    if NODE not in names:
        errors.append(FieldError("Required", f"{AT}.replicatedJobs", f"must have one with name {NODE}"))
    if "mpi" in policy and not has_launcher:
        errors.append(FieldError("Required", f"{AT}.replicatedJobs", f"must have one with name {LAUNCHER}"))
    if has_launcher and _is_host(policy):
        count = max(count - 1, 1)  # the launcher is a node too
    steps: dict[str, InitializerStep] = {}
    for field, step in ((spec.initializer.dataset, DATASET_STEP), (spec.initializer.model, MODEL_STEP)):
        if field is None:
            continue
        steps[step] = field
        if not any(_step_of(job) == step and _container(job, step) for job in jobs):
            rule = f"needs a job in the runtime with label {STEP_LABEL}: {step} and a container of that name"
            errors.append(FieldError("Invalid", f"spec.initializer.{step.partition('-')[0]}", rule))
    restarts_gang = jobset.get("failurePolicy") is not None
    roles = {
        str(job.get("name")): _role(
            job, _containers(job, spec, policy, steps), count, restarts_gang=restarts_gang
        )
        for job in jobs
    }
    return roles, errors


def read_mpi(spec: TrainJobSpec, policy: Obj, roles: dict[str, TrainingReplicaSpec]) -> MpiLaunch | None:
    """Return how mpirun reaches its hosts; None for a runtime without it."""
    mpi = policy.get("mpi")
    if mpi is None:
        return None
    slots = spec.trainer.num_proc_per_node or mpi.get("numProcPerNode") or 1
    if slots == 1 and not spec.trainer.num_proc_per_node and NODE in roles:
        slots = max(_gpus(roles[NODE]), 1)
    path = mpi.get("sshAuthMountPath") or MpiLaunch().ssh_mount_path
    return MpiLaunch(slots=slots, ssh_mount_path=path, is_host=_is_host(policy))


def _is_host(policy: Obj) -> bool:
    return bool((policy.get("mpi") or {}).get("runLauncherAsNode"))


def _gpus(role: TrainingReplicaSpec) -> int:
    """Return the GPUs that the container which trains is limited to."""
    for container in role.containers:
        if container.get("name") == NODE:
            limits = (container.get("resources") or {}).get("limits") or {}
            counts = [str(count) for name, count in limits.items() if is_gpu(name)]
            return max((int(count) for count in counts if count.isdigit()), default=0)
    return 0


def is_gpu(resource: str) -> bool:
    """Whether a resource is one by which Kubeflow Trainer counts GPUs: its name says so."""
    return "gpu" in resource or "mig-" in resource


def _step_of(job: Obj) -> str:
    return str(((job.get("template") or {}).get("metadata") or {}).get("labels", {}).get(STEP_LABEL) or "")


def _pod_template(job: Obj) -> Obj:
    template: Obj = ((job.get("template") or {}).get("spec") or {}).get("template") or {}
    return template


def _container(job: Obj, name: str) -> Obj | None:
    containers = (_pod_template(job).get("spec") or {}).get("containers") or []
    return next((one for one in containers if one.get("name") == name), None)


def _containers(job: Obj, spec: TrainJobSpec, policy: Obj, steps: dict[str, InitializerStep]) -> list[Obj]:
    """Return the containers of a replicated job with what the TrainJob has otherwise.

    What trains is the container ``node`` of the trainer's step. Under mpirun its image and variables are
    those of the hosts too, which run a server of their own and not its command.
    """
    step, found = _step_of(job), []
    for container in (_pod_template(job).get("spec") or {}).get("containers") or []:
        name = container.get("name")
        if name == NODE and step == TRAINER_STEP:
            container = _changed(
                container, _given(spec, with_resources="mpi" not in policy or _is_host(policy))
            )
            container = _with_env(container, spec.trainer.env)
        elif name == NODE and "mpi" in policy and job.get("name") == NODE:
            given = _given(spec, with_resources=True)
            container = _changed(container, {key: given[key] for key in ("image", "resources")})
            container = _with_env(container, spec.trainer.env)
        elif step in steps and name == step:
            container = _initialized(container, steps[step])
        found.append(container)
    return found


def _given(spec: TrainJobSpec, *, with_resources: bool) -> Obj:
    trainer = spec.trainer
    return {
        "image": trainer.image,
        "command": trainer.command,
        "args": trainer.args,
        "resources": trainer.resources_per_node if with_resources else None,
    }


def _changed(container: Obj, given: Obj) -> Obj:
    return {**container, **{key: value for key, value in given.items() if value is not None}}


def _with_env(container: Obj, env: list[Obj]) -> Obj:
    names = {variable.get("name") for variable in env}
    kept = [variable for variable in container.get("env") or [] if variable.get("name") not in names]
    return {**container, "env": [*kept, *env]} if kept or env else container


def _initialized(container: Obj, step: InitializerStep) -> Obj:
    uri = [{"name": _STORAGE_VARIABLE, "value": step.storage_uri}] if step.storage_uri is not None else []
    container = _with_env(_with_env(container, uri), step.env)
    if step.secret_ref is None:
        return container
    source = {"secretRef": {"name": step.secret_ref.name}}
    return {**container, "envFrom": [*(container.get("envFrom") or []), source]}


def _role(job: Obj, containers: list[Obj], count: int, *, restarts_gang: bool) -> TrainingReplicaSpec:
    template, spec = _pod_template(job), (job.get("template") or {}).get("spec") or {}
    metadata = template.get("metadata") or {}
    step = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
    metadata = {**metadata, "labels": {**step, **(metadata.get("labels") or {})}}
    pod = template.get("spec") or {}
    policy = "Never" if restarts_gang else str(pod.get("restartPolicy") or "OnFailure")
    rest = {key: value for key, value in pod.items() if key != "restartPolicy"}
    return TrainingReplicaSpec(
        replicas=_replicas(job) * (count if job.get("name") == NODE else int(spec.get("parallelism") or 1)),
        restart_policy=policy,
        template={**template, "metadata": metadata, "spec": {**rest, "containers": containers}},
    )
