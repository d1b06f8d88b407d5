"""arena's flags of ``gangline submit mpijob``, and where the command behind them begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from gangline.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])

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
    "--dry-run",
)
_NOT_SERVED = {
    "--tensorboard": "run TensorBoard as a Deployment of its own",
    "--tensorboard-image": "run TensorBoard as a Deployment of its own",
    "--logdir": "run TensorBoard as a Deployment of its own",
    "--model-name": "register the model after the job",
    "--model-source": "register the model after the job",
    "--sync-mode": "put the code into the image, or mount it with --data-dir",
    "--sync-source": "put the code into the image, or mount it with --data-dir",
    "--sync-image": "put the code into the image, or mount it with --data-dir",
}
"""arena's flags that nothing here stands behind, each with the way on."""


class GoFlags(click.Command):
    """Takes ``--gang=true`` and ``--gang=false`` for flags, as arena does, and refuses what is not served."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the flags; the command behind them stays as it was written."""
        start = self._first_word(args)
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
            place += 2 if takes_value.get(word) and word not in _BOOLEANS else 1
        return min(place, len(args))

    def own_flags(self, words: Sequence[str]) -> list[str]:
        """Return the words that would be flags if they stood in front of the command."""
        names = {name for option in self.params for name in option.opts if name.startswith("--")}
        return [word for word in words if word.partition("=")[0] in names]


FLAGS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--name",), {"required": True, "metavar": "NAME", "help": "Name of the job."}),
    (("--image",), {"required": True, "metavar": "IMAGE", "help": "Container image."}),
    (("--gpus",), {"type": int, "default": 0, "help": "GPUs of each worker.  [default: 0]"}),
    (("--workers",), {"type": int, "default": 1, "help": "Number of workers.  [default: 1]"}),
    (("--gang",), {"is_flag": True, "help": "Start all workers and the launcher together, or none."}),
    (
        ("--gputopology", "gpu_topology"),
        {
            "is_flag": True,
            "help": "Nodes labelled ack.node.gpu.schedule=topology only: GPUs by their links.",
        },
    ),
    (("--cpu",), {"default": "", "metavar": "AMOUNT", "help": "CPUs of each worker."}),
    (("--memory",), {"default": "", "metavar": "AMOUNT", "help": "Memory of each worker."}),
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
    (("--mounts-on-launcher",), {"is_flag": True, "help": "Mount data in the launcher too."}),
    (
        ("--clean-task-policy", "clean_policy"),
        {
            "type": click.Choice(["None", "Running", "All"]),
            "default": "All",
            "help": "Which workers are deleted at the end.  [default: All]",
        },
    ),
    (("--dry-run",), {"is_flag": True, "help": "Check everything, print the objects, create nothing."}),
    (
        ("-o", "--output"),
        {"type": click.Choice(["yaml", "json"]), "default": "yaml", "help": "What --dry-run prints."},
    ),
)
"""arena's flags of `submit mpijob`: names, and click's settings."""


def mpijob_options(function: F) -> F:
    """Add arena's flags of `submit mpijob`."""
    for names, settings in reversed(FLAGS):
        function = click.option(*names, **settings)(function)
    return function
