"""What ``gangline submit`` was asked for, in arena's words. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gangline.api.dns_names import is_dns_1035_label, is_dns_1123_label
from gangline.api.resources import MPIJOBS
from gangline.errors import UserError
from gangline.units import parse_quantity

Obj = dict[str, Any]

NAME_CHARS_MAX = 49
"""As arena: names of pods are made of it."""

_TOLERATION = re.compile(  # gpu=yes:NoSchedule,Equal
    r"(?P<key>[^=:,\s]+)(=(?P<value>[^:,]*))?:(?P<effect>[A-Za-z]*)(,(?P<operator>Exists|Equal))?$"
)
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class RoleFlags:
    """What one role of a TFJob asks for, where it differs from the others.

    Attributes:
        image: empty for the job's own.
        cpu, memory: requested; ``cpu_limit`` and ``memory_limit`` are empty for the same.
        port: 0 for the operator's own.
        selectors: instead of the job's.
    """

    image: str = ""
    cpu: str = ""
    cpu_limit: str = ""
    memory: str = ""
    memory_limit: str = ""
    port: int = 0
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """What was written on the command line, checked only for its form.

    Attributes:
        kind: as manifests spell it.
        gpus: of each worker.
        devices: ``NAME=COUNT`` of other extended resources.
        claims: ``CLAIM:PATH``. host_folders: ``HOST[:CONTAINER]``.
        config_files: container folder -> file name -> content.
        suspend: kube-queue starts the job.
        shared_memory: size of /dev/shm.
        deadline_s, kept_s: of the run, and of the job after its end; None for no end.
        ps, ps_gpus, has_chief, has_evaluator, success_policy, roles: of a TFJob.
    """

    name: str
    namespace: str
    image: str
    command: str
    kind: str = MPIJOBS.kind
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
    shared_memory: str = "2Gi"
    deadline_s: int | None = None
    kept_s: int | None = None
    nproc_per_node: str = ""
    ps: int = 0
    ps_gpus: int = 0
    has_chief: bool = False
    has_evaluator: bool = False
    success_policy: str = ""
    roles: dict[str, RoleFlags] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UserError: a flag breaks a rule; the message names it with the value found.
        """
        if not is_dns_1123_label(self.name) or len(self.name) > NAME_CHARS_MAX:
            raise UserError(
                f"--name must be lower-case letters, digits and inner dashes, at most {NAME_CHARS_MAX} "
                f"(found `{self.name}`)"
            )
        if self.kind != MPIJOBS.kind and not is_dns_1035_label(self.name):
            raise UserError(f"--name of a {self.kind} must begin with a letter (found `{self.name}`)")
        least = (("--workers", self.workers, 1), ("--gpus", self.gpus, 0))
        for flag, count, fewest in (*least, ("--ps", self.ps, 0), ("--ps-gpus", self.ps_gpus, 0)):
            if count < fewest:
                raise UserError(f"{flag} must be at least {fewest} (found `{count}`)")
        if self.gpu_topology and not self.gpus:
            raise UserError("--gputopology chooses GPUs, and --gpus is 0", hint="add --gpus=1")
        amounts = [("--cpu", self.cpu), ("--memory", self.memory), ("--share-memory", self.shared_memory)]
        for role, flags in self.roles.items():
            amounts += [(f"--{role}-cpu", flags.cpu), (f"--{role}-cpu-limit", flags.cpu_limit)]
            amounts += [(f"--{role}-memory", flags.memory), (f"--{role}-memory-limit", flags.memory_limit)]
        for flag, text in amounts:
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
