"""arena's flags of ``gangline submit``, and where the command behind them begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from gangline.api.resources import MPIJOBS, PYTORCHJOBS, TFJOBS
from gangline.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])
Flag = tuple[tuple[str, ...], dict[str, Any]]
ROLES = ("worker", "ps", "chief", "evaluator")
_CAPITAL = re.compile("[A-Z]")  # the I of psImage

_BOOLEANS = (
    "--gang",
    "--gputopology",
    "--rdma",
    "--queue",
    "--hostNetwork",
    "--hostIPC",
    "--hostPID",
    "--mounts-on-launcher",
    "--tensorboard",
    "--chief",
    "--evaluator",
    "--dry-run",
)
_BY_SCHEDULER = "leave it out: the scheduler packs a gang onto few nodes; `--selector` names nodes"
_NOT_SERVED = {
    "--tensorboard": "run TensorBoard as a Deployment of its own",
    "--tensorboard-image": "run TensorBoard as a Deployment of its own",
    "--logdir": "run TensorBoard as a Deployment of its own",
    "--model-name": "register the model after the job",
    "--model-source": "register the model after the job",
    "--sync-mode": "put the code into the image, or mount it with --data-dir",
    "--sync-source": "put the code into the image, or mount it with --data-dir",
    "--sync-image": "put the code into the image, or mount it with --data-dir",
    "--role-sequence": "leave it out: all roles start together",
    "--starting-timeout": "leave it out: `gangline explain` says why a job waits",
    "--worker-affinity-policy": _BY_SCHEDULER,
    "--worker-affinity-constraint": _BY_SCHEDULER,
    "--ps-affinity-policy": _BY_SCHEDULER,
    "--ps-affinity-constraint": _BY_SCHEDULER,
}
"""arena's flags that nothing here stands behind, each with the way on."""


def _dashed(name: str) -> str:
    return _CAPITAL.sub(lambda letter: f"-{letter[0].lower()}", name)


class GoFlags(click.Command):
    """Takes ``--gang=true`` and ``--gang=false`` for flags, as arena does, and refuses what is not served."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the flags; the command behind them stays as it was written."""
        start = self._first_word(args)
        args = [*map(self._today, args[:start]), *args[start:]]
        rewritten = []
        for word in args[:start]:
            name, equals, value = word.partition("=")
            if name in _NOT_SERVED and value.lower() != "false":
                raise UserError(f"{name} is not served", hint=_NOT_SERVED[name])
            if name not in _BOOLEANS or not equals:
                rewritten.append(word)
            elif value.lower() in ("true", "t", "1"):
                rewritten.append(name)
            elif value.lower() not in ("false", "f", "0"):
                raise UserError(f"{word}: write {name}=true or {name}=false")
        return super().parse_args(ctx, rewritten + args[start:])

    def _today(self, word: str) -> str:
        """Return a flag in arena's old spelling, ``--psImage``, as it is written today."""
        name, equals, value = word.partition("=")
        dashed = _dashed(name)
        return f"{dashed}{equals}{value}" if self._knows(dashed) and not self._knows(name) else word

    def _knows(self, name: str) -> bool:
        return name in _NOT_SERVED or any(name in option.opts for option in self.params)

    def _first_word(self, args: Sequence[str]) -> int:
        """Return the place of the first word that is neither a flag nor the value of one."""
        takes_value = {
            name: isinstance(option, click.Option) and not option.is_flag
            for option in self.params
            for name in option.opts
        } | dict.fromkeys(_NOT_SERVED, True)
        place = 0
        while place < len(args):
            word = args[place]
            if word == "--" or not word.startswith("-") or word == "-":
                break
            takes = takes_value.get(word, takes_value.get(_dashed(word)))
            place += 2 if takes and word not in _BOOLEANS else 1
        return min(place, len(args))

    def own_flags(self, words: Sequence[str]) -> list[str]:
        """Return the words that would be flags if they stood in front of the command."""
        names = {name for option in self.params for name in option.opts if name.startswith("--")}
        return [word for word in words if word.partition("=")[0] in names]


_COMMON: tuple[Flag, ...] = (
    (("--name",), {"required": True, "metavar": "NAME", "help": "Name of the job."}),
    (("--image",), {"required": True, "metavar": "IMAGE", "help": "Container image."}),
    (("--gpus",), {"type": int, "default": 0, "help": "GPUs of each worker.  [default: 0]"}),
    (("--workers",), {"type": int, "default": 1, "help": "Number of workers.  [default: 1]"}),
    (("--gang",), {"is_flag": True, "help": "Start all replicas together, or none."}),
    (
        ("--gputopology", "gpu_topology"),
        {
            "is_flag": True,
            "help": "Nodes labelled ack.node.gpu.schedule=topology only: GPUs by their links.",
        },
    ),
    (
        ("--device", "devices"),
        {"multiple": True, "metavar": "NAME=COUNT", "help": "Another extended resource of each worker."},
    ),
    (("--retry",), {"type": int, "default": 0, "help": "Failures that are allowed.  [default: 0]"}),
    (
        ("--working-dir",),
        {
            "default": "",
            "metavar": "PATH",
            "help": "Where the program starts.  [default: the image's own]",
        },
    ),
    (("-e", "--env"), {"multiple": True, "metavar": "NAME=VALUE", "help": "Variable of all containers."}),
    (("-d", "--data", "claims"), {"multiple": True, "metavar": "CLAIM:PATH", "help": "Mount a claim."}),
    (
        ("--data-dir", "host_folders"),
        {"multiple": True, "metavar": "HOST[:CONTAINER]", "help": "Mount a folder of the node."},
    ),
    (
        ("-a", "--annotation", "annotations"),
        {"multiple": True, "metavar": "KEY=VALUE", "help": "Of job and pods."},
    ),
    (("-l", "--label", "labels"), {"multiple": True, "metavar": "KEY=VALUE", "help": "Of job and pods."}),
    (
        ("--config-file", "config_files"),
        {"multiple": True, "metavar": "HOST[:CONTAINER]", "help": "Mount a file of yours, by a ConfigMap."},
    ),
    (
        ("--selector", "selectors"),
        {"multiple": True, "metavar": "KEY=VALUE", "help": "Label of the nodes to use."},
    ),
    (
        ("--toleration", "tolerations"),
        {"multiple": True, "metavar": "KEY=VALUE:EFFECT,OPERATOR", "help": "Taint to put up with, or `all`."},
    ),
    (
        ("--image-pull-secret", "pull_secrets"),
        {"multiple": True, "metavar": "NAME", "help": "Secret for the image."},
    ),
    (
        ("--image-pull-policy", "pull_policy"),
        {
            "type": click.Choice(["Always", "IfNotPresent", "Never"]),
            "default": "Always",
            "help": "When to pull.",
        },
    ),
    (("--shell",), {"default": "sh", "metavar": "SHELL", "help": "Runs the command.  [default: sh]"}),
    (
        ("--scheduler",),
        {"default": "", "metavar": "NAME", "help": "Scheduler.  [default: with --gang Gangline's]"},
    ),
    (("-p", "--priority"), {"default": "", "metavar": "NAME", "help": "PriorityClass of the job."}),
    (("--queue", "suspend"), {"is_flag": True, "help": "Suspended until kube-queue or Kueue starts it."}),
    (("--rdma",), {"is_flag": True, "help": "One rdma/hca for each worker, and IPC_LOCK."}),
    (("--hostNetwork", "host_network"), {"is_flag": True, "help": "On the network of the node."}),
    (("--hostIPC", "host_ipc"), {"is_flag": True, "help": "With the shared memory of the node."}),
    (("--hostPID", "host_pid"), {"is_flag": True, "help": "With the processes of the node."}),
    (("--dry-run",), {"is_flag": True, "help": "Check everything, print the objects, create nothing."}),
    (
        ("-o", "--output"),
        {"type": click.Choice(["yaml", "json"]), "default": "yaml", "help": "What --dry-run prints."},
    ),
)
"""Flags of every kind: names, and click's settings."""

_RESOURCES: tuple[Flag, ...] = (
    (("--cpu",), {"default": "", "metavar": "AMOUNT", "help": "CPUs of each worker."}),
    (("--memory",), {"default": "", "metavar": "AMOUNT", "help": "Memory of each worker."}),
)
_TRAINING: tuple[Flag, ...] = (
    (
        ("--running-timeout", "deadline"),
        {"default": "", "metavar": "DURATION", "help": "End the job after this time: 90s, 30m, 2h."},
    ),
    (
        ("--ttl-after-finished", "kept"),
        {"default": "", "metavar": "DURATION", "help": "Delete the job so long after its end."},
    ),
    (
        ("--share-memory", "shared_memory"),
        {"default": "2Gi", "metavar": "AMOUNT", "help": "Size of /dev/shm.  [default: 2Gi]"},
    ),
)


def _clean(default: str) -> Flag:
    return (
        ("--clean-task-policy", "clean_policy"),
        {
            "type": click.Choice(["None", "Running", "All"]),
            "default": default,
            "help": f"Which replicas are deleted at the end.  [default: {default}]",
        },
    )


def _of_roles() -> Iterator[Flag]:
    """Yield the flags that a TFJob's roles have each."""
    for role in ROLES:
        for name, words in (("cpu", "CPUs"), ("memory", "Memory")):
            text = {"default": "", "metavar": "AMOUNT"}
            yield (f"--{role}-{name}",), text | {"help": f"{words} of each {role}."}
            yield (f"--{role}-{name}-limit",), text | {"help": f"At most.  [default: --{role}-{name}]"}
        yield (
            (f"--{role}-selector", f"{role}_selectors"),
            {"multiple": True, "metavar": "KEY=VALUE", "help": f"Nodes of each {role}, not --selector's."},
        )
        if role in ("worker", "ps"):
            text = {"default": "", "metavar": "IMAGE"}
            yield (f"--{role}-image",), text | {"help": f"Image of each {role}.  [default: --image]"}
        if role != "evaluator":
            port = {"type": int, "default": 0, "metavar": "PORT"}
            yield (f"--{role}-port",), port | {"help": f"Of each {role}.  [default: 2222]"}


FLAGS: dict[str, tuple[Flag, ...]] = {
    MPIJOBS.kind: (
        *_COMMON,
        *_RESOURCES,
        (("--mounts-on-launcher",), {"is_flag": True, "help": "Mount data in the launcher too."}),
        _clean("All"),
    ),
    PYTORCHJOBS.kind: (
        *_COMMON,
        *_RESOURCES,
        (
            ("--nproc-per-node",),
            {"default": "", "metavar": "auto|cpu|gpu|N", "help": "For torchrun: processes of each worker."},
        ),
        *_TRAINING,
        _clean("Running"),
    ),
    TFJOBS.kind: (
        *(flag for flag in _COMMON if flag[0] != ("--image",)),
        (
            ("--image",),
            {"default": "", "metavar": "IMAGE", "help": "Container image of roles without one of their own."},
        ),
        (("--ps",), {"type": int, "default": 0, "help": "Number of parameter servers.  [default: 0]"}),
        (("--ps-gpus",), {"type": int, "default": 0, "help": "GPUs of each.  [default: 0]"}),
        (("--chief", "has_chief"), {"is_flag": True, "help": "With a chief."}),
        (("--evaluator", "has_evaluator"), {"is_flag": True, "help": "With an evaluator."}),
        *_of_roles(),
        (
            ("--success-policy",),
            {
                "type": click.Choice(["ChiefWorker", "AllWorkers"]),
                "default": "ChiefWorker",
                "help": "Whose end is the job's.  [default: ChiefWorker]",
            },
        ),
        *_TRAINING,
        _clean("Running"),
    ),
}
"""arena's flags by kind: names, and click's settings."""


def submit_options(kind: str) -> Callable[[F], F]:
    """Return what adds arena's flags of a kind."""

    def add(function: F) -> F:
        for names, settings in reversed(FLAGS[kind]):
            function = click.option(*names, **settings)(function)
        return function

    return add
