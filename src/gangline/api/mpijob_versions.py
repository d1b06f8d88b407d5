"""MPIJobs of every version in the shape of v2beta1.

A cluster stores one version, and with conversion ``None`` an object of another comes back under the name of
v2beta1 with its own fields. So an object is read by its shape; the version through which it was written,
where metadata tells, only decides what the shape leaves open. Nothing is written back.

Reading order: ``written_version`` (what metadata tells), ``normalise`` (the entry), ``_Draft`` (one rewrite).
Source: the MPI operator's v1alpha1 (0.1), v1alpha2 (0.2) and v1 (0.3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

import msgspec

from gangline.api.core import ObjectMeta
from gangline.api.decode import decode, show
from gangline.api.mpijob import LAUNCHER, WORKER, JobMeta
from gangline.api.mpijob_legacy import (
    IMPLEMENTATION_OF,
    LEGACY_NAMES,
    OLD_VERSIONS,
    SUCCESSORS,
    V1,
    V1ALPHA1,
    V1ALPHA1_NAMES,
    V1ALPHA2,
    V2BETA1,
    LegacyFields,
)
from gangline.api.mpijob_v1alpha1 import rewrite_template
from gangline.api.resources import MPIJOBS, WRITTEN_VERSION_ANNOTATION
from gangline.errors import FieldError

Object = dict[str, Any]

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
IDLE_COMMAND: Final = ("sleep", "365d")
"""What workers of old versions run: ranks come in through the exec API, not through an ssh server."""
_ROLES = "spec.mpiReplicaSpecs"


class Normalised(msgspec.Struct, frozen=True):
    """A spec in the shape of v2beta1.

    Attributes:
        spec: the spec; the very same value when there was nothing to do.
        version: by whose rules the job was written.
        needs_exec: whether ranks reach the workers through the exec API, for they run no ssh server.
        errors: what has no meaning in v2beta1.
        warnings: what was passed over.
        moved: (path now, path as written) of what stands in another place; the first that fits counts.
    """

    spec: Any
    version: str = V2BETA1
    needs_exec: bool = False
    errors: list[FieldError] = []
    warnings: list[FieldError] = []
    moved: tuple[tuple[str, str], ...] = ()

    def as_written(self, errors: Iterable[FieldError]) -> list[FieldError]:
        """Return errors with the paths that the user wrote, each once."""
        placed: dict[tuple[str, str], FieldError] = {}
        for error in errors:
            path = next(
                (old + error.path[len(new) :] for new, old in self.moved if _is_within(error.path, new)),
                error.path,
            )
            placed.setdefault((path, error.message), replace(error, path=path))
        return list(placed.values())


def version_of(api_version: Any) -> str:
    """Return the version in an ``apiVersion`` of MPIJobs' group, else an empty string."""
    group, _, version = str(api_version or "").rpartition("/")
    return version if group == MPIJOBS.group else ""


def written_version(metadata: ObjectMeta) -> str:
    """Return the version through which an object was written, empty when metadata does not tell.

    What kubectl applied last says it best, then the note of the server. Else the first writer counts: tools
    that edit later may come through whichever version the server prefers.
    Cost: reads the applied text when there is one, 20 us.
    """
    applied = metadata.annotations.get(LAST_APPLIED)
    if applied:
        try:
            version = version_of(json.loads(applied).get("apiVersion"))
        except (ValueError, AttributeError, RecursionError):  # anybody may write the annotation
            version = ""
        if version:
            return version
    if noted := version_of(metadata.annotations.get(WRITTEN_VERSION_ANNOTATION)):
        return noted
    entries = metadata.managed_fields if isinstance(metadata, JobMeta) else []
    writers = [
        (entry.time or "", version_of(entry.api_version)) for entry in entries if not entry.subresource
    ]
    return min((item for item in writers if item[1]), default=("", ""))[1]


def normalise(spec: Any, written: str = "") -> Normalised:
    """Return the spec in the shape of v2beta1, with what to tell about it.

    Args:
        spec: as stored or as in a manifest; of any type.
        written: the version through which it was written, empty when that is not known.

    Cost: 2 microseconds for a job of v2beta1, else O(size of the templates).
    """
    if not isinstance(spec, dict):
        return Normalised(spec)
    legacy = [name for name in spec if name in LEGACY_NAMES and spec[name] is not None]
    version = _version(spec, legacy, written)
    if version == V2BETA1 and not legacy:
        return Normalised(spec)
    typed, errors = decode({name: spec[name] for name in legacy}, LegacyFields, path="spec")
    draft = _Draft(spec, typed, version, errors)
    if version == V1ALPHA1:
        draft.spread_template()
    else:
        draft.pass_over(V1ALPHA1_NAMES.intersection(legacy))
    draft.move_fields()
    is_sure = version in (V1ALPHA1, V1ALPHA2) or bool(legacy)
    draft.rewrite_roles(by_exec=version != V2BETA1, is_sure=is_sure)
    return draft.result()


def _version(spec: Object, legacy: list[str], written: str) -> str:
    """Tell by whose rules a spec was written; its shape comes before what metadata says."""
    if spec.get("mpiReplicaSpecs") is None and V1ALPHA1_NAMES.intersection(legacy):
        return V1ALPHA1
    if written == V1ALPHA1:
        return V1ALPHA2  # it has roles, which v1alpha1 had not
    if written in OLD_VERSIONS or (written == V2BETA1):
        return written
    return V1ALPHA2 if legacy else V2BETA1


class _Draft:
    """One spec while it is rewritten."""

    def __init__(self, spec: Object, legacy: LegacyFields, version: str, errors: list[FieldError]) -> None:
        self.given = spec
        self.legacy = legacy
        self.version = version
        self.errors = errors
        self.warnings: list[FieldError] = []
        self.moved: list[tuple[str, str]] = []
        self.needs_exec = False
        self.spec = {name: value for name, value in spec.items() if name not in LEGACY_NAMES}

    def result(self) -> Normalised:
        moved = tuple(sorted(self.moved, key=lambda item: -len(item[0])))
        return Normalised(self.spec, self.version, self.needs_exec, self.errors, self.warnings, moved)

    def warn(self, path: str, message: str, value: Any = "") -> None:
        self.warnings.append(FieldError("Invalid", path, message, show(value) if value != "" else ""))

    def pass_over(self, names: Iterable[str]) -> None:
        """Say which fields belong to yet another version."""
        for name in sorted(names):
            self.warn(f"spec.{name}", f"belongs to v1alpha1 and is passed over in a job of {self.version}")

    def spread_template(self) -> None:
        """Make both roles of v1alpha1's one template."""
        rewritten = rewrite_template(self.legacy, self.given.get("slotsPerWorker"))
        self.errors += rewritten.errors
        self.spec["mpiReplicaSpecs"] = rewritten.roles
        self.spec.setdefault("slotsPerWorker", rewritten.slots)
        self.moved += [(f"{_ROLES}[{role}].template", "spec.template") for role in (LAUNCHER, WORKER)]
        self.moved.append((f"{_ROLES}[{WORKER}].replicas", f"spec.{rewritten.counted}"))
        self.moved.append((_ROLES, "spec"))
        # v1alpha1 scaled its workers to none at the end.
        self.spec["runPolicy"] = {"cleanPodPolicy": "Running", **_object(self.given.get("runPolicy"))}

    def move_fields(self) -> None:
        """Put limits and policies where v2beta1 has them; what stands there already wins."""
        policy = self.spec.get("runPolicy")
        limits = {
            "cleanPodPolicy": self.legacy.clean_pod_policy,
            "backoffLimit": self.legacy.backoff_limit,
            "activeDeadlineSeconds": self.legacy.active_deadline_seconds,
        }
        if policy is None or isinstance(policy, dict):
            merged = dict(policy or {})
            for name, value in limits.items():
                self.move(merged, name, value, SUCCESSORS[name])
            if merged:
                self.spec["runPolicy"] = merged
        distribution = self.legacy.mpi_distribution
        if distribution is not None:
            implementation = IMPLEMENTATION_OF.get(distribution, distribution)
            self.move(self.spec, "mpiDistribution", implementation, SUCCESSORS["mpiDistribution"])

    def move(self, target: Object, name: str, value: Any, path: str) -> None:
        if value is None:
            return
        key = path.rpartition(".")[2]
        if target.get(key) is None:
            target[key] = value
            self.moved.append((path, f"spec.{name}"))
        elif target[key] != value:
            self.warn(f"spec.{name}", f"is passed over, for `{path}` says otherwise", self.given[name])

    def rewrite_roles(self, *, by_exec: bool, is_sure: bool) -> None:
        """Bring the templates to v2beta1's rules: order of containers, restart policies, idle workers.

        Args:
            by_exec: whether the version reaches its workers through the exec API.
            is_sure: whether more than a version's name says so; a job that kubectl wrote through the
                version that the server prefers looks the same.
        """
        roles = self.spec.get("mpiReplicaSpecs")
        if not isinstance(roles, dict):
            return
        roles = {name: deepcopy(role) if name in (LAUNCHER, WORKER) else role for name, role in roles.items()}
        self.spec["mpiReplicaSpecs"] = roles
        for name in (LAUNCHER, WORKER):
            if isinstance(roles.get(name), dict):
                self.rewrite_restart_policy(name, roles[name])
                self.put_main_container_first(name, containers_of(roles[name]))
        worker = roles.get(WORKER)
        if by_exec and isinstance(worker, dict):
            self.rewrite_worker(containers_of(worker), is_sure=is_sure)
        if self.version == V1 and "runLauncherAsWorker" not in self.spec and _has_gpu(roles.get(LAUNCHER)):
            self.spec["runLauncherAsWorker"] = True

    def rewrite_restart_policy(self, role: str, spec: Object) -> None:
        policy = spec.get("restartPolicy")
        if policy in ("Always", "ExitCode") and self.version != V2BETA1:
            spec["restartPolicy"] = "OnFailure" if role == LAUNCHER else "Never"
            self.warn(f"{_ROLES}[{role}].restartPolicy", f"is read as {spec['restartPolicy']}", policy)
        elif not policy and self.version == V1:
            spec["restartPolicy"] = "Never"

    def put_main_container_first(self, role: str, containers: list[Any]) -> None:
        main = self.legacy.main_container
        if not main:
            return
        names = [item.get("name") if isinstance(item, dict) else None for item in containers]
        if main not in names:
            if role == WORKER:
                rule = "no container of the Worker has this name"
                self.errors.append(FieldError("Invalid", "spec.mainContainer", rule, show(main)))
            return
        index = names.index(main)
        containers.insert(0, containers.pop(index))
        path = f"{_ROLES}[{role}].template.spec.containers"
        was = [index, *range(index)]
        self.moved += [(f"{path}[{new}]", f"{path}[{old}]") for new, old in enumerate(was) if new != old]

    def rewrite_worker(self, containers: list[Any], *, is_sure: bool) -> None:
        main = containers[0] if containers and isinstance(containers[0], dict) else None
        if main is None or _runs(main, "sshd") or not (is_sure or _runs(main, "sleep")):
            return
        self.needs_exec = True
        if not main.get("command"):
            main["command"], main["args"] = [IDLE_COMMAND[0]], [*IDLE_COMMAND[1:]]


def containers_of(role: Any) -> list[Any]:
    """Return the list of containers of a role in wire form; a fresh empty one where there is none."""
    containers = _object(_object(_object(role).get("template")).get("spec")).get("containers")
    return containers if isinstance(containers, list) else []


def _runs(container: Object, program: str) -> bool:
    words = [
        word
        for part in ("command", "args")
        if isinstance(container.get(part), list)
        for word in container[part]
    ]
    return any(
        isinstance(word, str) and program in word.replace(";", " ").replace("/", " ").split()
        for word in words
    )


def _has_gpu(launcher: Any) -> bool:
    return any(
        isinstance(name, str) and (name.endswith(".com/gpu") or "gpu" in name)
        for container in containers_of(launcher)
        for name in _object(_object(_object(container).get("resources")).get("limits"))
    )


def _is_within(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


def _object(value: Any) -> Object:
    return value if isinstance(value, dict) else {}
