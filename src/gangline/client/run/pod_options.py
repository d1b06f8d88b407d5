"""What is asked of the pods of a program on a cluster of a kubeconfig."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gangline.devices.inventory import PRODUCT_LABEL
from gangline.errors import UserError

Obj = dict[str, Any]

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_UNSAID = ("", (), 0, None)


class PodOptions(msgspec.Struct, frozen=True):
    """What was written on the command line; empty for what was not.

    Attributes:
        cpus: processors of each pod, requested and not limited.
        memory: memory of each pod, requested and limited.
        shm: size of /dev/shm, in memory.
        claims: ``NAME:/path`` or ``NAME:/path:ro`` each.
        code_claim: the same for one that has the code, which then does not travel.
        gpu_kind: product name of the GPUs, as NVIDIA's feature discovery labels nodes with it.
        node_selector: ``LABEL=VALUE`` each.
        tolerations: ``KEY[=VALUE][:EFFECT]`` each.
        priority: priority class.
        queue: local queue of Kueue, which admits the job.
        scheduler: who places the pods; empty for the cluster's default.
        service_account: of the pods.
        pull_secrets: names of Secrets with which images are pulled.
        deadline_s: seconds after which the job is ended.
        restarts: how often all ranks start again after one has failed, or a pod was lost.
        env_files: files with ``NAME=VALUE`` lines.
        is_mpi: whether `mpirun` starts the ranks; None where the user left that open.
        is_detached: whether the command ends once the job is created.
    """

    cpus: str = ""
    memory: str = ""
    shm: str = ""
    claims: tuple[str, ...] = ()
    code_claim: str = ""
    gpu_kind: str = ""
    node_selector: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    priority: str = ""
    queue: str = ""
    scheduler: str = ""
    service_account: str = ""
    pull_secrets: tuple[str, ...] = ()
    deadline_s: int = 0
    restarts: int = 0
    env_files: tuple[str, ...] = ()
    is_mpi: bool | None = None
    is_detached: bool = False

    def check(self, *, is_program: bool, is_local: bool) -> None:
        """Refuse what belongs to programs on other clusters, and what cannot be read; all at once.

        Raises:
            UserError: with the options and the rules.
        """
        here = ("restarts",) if is_program else ()
        given = [
            OPTIONS[field]
            for field in self.__struct_fields__
            if getattr(self, field) not in _UNSAID and field not in here
        ]
        if given and (is_local or not is_program):
            raise UserError(
                f"{given[0]} belongs to programs on a cluster of a kubeconfig",
                hint="add --context CONTEXT and a program behind `--`, or leave it out",
            )
        written: list[tuple[str, tuple[str, ...], Callable[[str], object]]] = [
            ("--claim", self.claims, _claim),
            ("--code-claim", (self.code_claim,) if self.code_claim else (), _claim),
            ("--node-selector", self.node_selector, _label),
            ("--toleration", self.tolerations, _toleration),
        ]
        problems = []
        for option, texts, read in written:
            for text in texts:
                try:
                    read(text)
                except ValueError as error:
                    problems.append(f"{option} {text}: {error}")
        if problems:
            raise UserError("\n".join(problems))

    def variables(self) -> list[str]:
        """Return the assignments of the files; empty lines and those that begin with ``#`` are none.

        Raises:
            UserError: a file cannot be read.
        """
        found = []
        for file in self.env_files:
            try:
                lines = Path(file).read_text().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"--env-file {file}: cannot be read: {error}") from None
            found += [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        return found

    @property
    def code_folder(self) -> str:
        """Where the claim with the code is shown; empty where the code travels."""
        return _claim(self.code_claim)[1] if self.code_claim else ""

    def apply(self, spec: Obj, extended: Mapping[str, int]) -> None:
        """Write them into the spec of a pod with one container.

        Args:
            spec: is changed.
            extended: extended resources of the container, such as GPUs.
        """
        container = spec["containers"][0]
        limits: Obj = dict(extended)
        requests: Obj = {}
        if self.cpus:
            requests["cpu"] = self.cpus
        if self.memory:
            requests["memory"] = limits["memory"] = self.memory
        resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
        if resources:
            container["resources"] = resources
        if self.shm:
            spec["volumes"].append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": self.shm}})
            container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
        for index, text in enumerate(filter(None, (*self.claims, self.code_claim))):
            name, path, is_read_only = _claim(text)
            source = {"claimName": name, **({"readOnly": True} if is_read_only else {})}
            spec["volumes"].append({"name": f"claim-{index}", "persistentVolumeClaim": source})
            container["volumeMounts"].append({"name": f"claim-{index}", "mountPath": path})
        more: Obj = {
            "nodeSelector": dict(map(_label, self.node_selector))
            | ({PRODUCT_LABEL: self.gpu_kind} if self.gpu_kind else {}),
            "tolerations": [_toleration(text) for text in self.tolerations],
            "priorityClassName": self.priority,
            "schedulerName": self.scheduler,
            "serviceAccountName": self.service_account,
            "imagePullSecrets": [{"name": name} for name in self.pull_secrets],
        }
        spec.update({key: value for key, value in more.items() if value})


def _claim(text: str) -> tuple[str, str, bool]:
    """Return name, path and whether it is only read.

    >>> _claim("data:/mnt/data:ro")
    ('data', '/mnt/data', True)
    """
    name, _, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not name or not path.startswith("/") or mode not in ("", "ro"):
        raise ValueError("write NAME:/path or NAME:/path:ro")
    return name, path, mode == "ro"


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError("write LABEL=VALUE")
    return key, value


def _toleration(text: str) -> Obj:
    """Return a toleration, as kubectl writes taints.

    >>> _toleration("nvidia.com/gpu:NoSchedule")
    {'key': 'nvidia.com/gpu', 'operator': 'Exists', 'effect': 'NoSchedule'}
    """
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    if not key or (effect and effect not in _EFFECTS):
        raise ValueError(f"write KEY[=VALUE][:EFFECT], the effect one of {', '.join(_EFFECTS)}")
    toleration: Obj = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key}
    toleration.setdefault("operator", "Exists")
    return toleration | ({"effect": effect} if effect else {})


OPTIONS = {
    "cpus": "--cpus",
    "memory": "--memory",
    "shm": "--shm",
    "claims": "--claim",
    "code_claim": "--code-claim",
    "gpu_kind": "--gpu-kind",
    "node_selector": "--node-selector",
    "tolerations": "--toleration",
    "priority": "--priority",
    "queue": "--queue",
    "scheduler": "--scheduler",
    "service_account": "--service-account",
    "pull_secrets": "--pull-secret",
    "deadline_s": "--deadline",
    "restarts": "--restarts",
    "env_files": "--env-file",
    "is_mpi": "--mpi",
    "is_detached": "--detach",
}
