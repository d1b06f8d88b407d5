"""The options of ``gangline run`` about the pods of a program on a cluster of a kubeconfig."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from gangline.client.run.pod_options import OPTIONS, PodOptions

F = TypeVar("F", bound=Callable[..., Any])

_HELP: dict[str, tuple[str, str]] = {
    "cpus": ("CPUS", "On a cluster: processors that each pod asks for."),
    "memory": ("MEMORY", "On a cluster: memory of each pod, such as 16Gi."),
    "shm": ("SIZE", "On a cluster: size of /dev/shm, such as 8Gi."),
    "claims": ("NAME:/path[:ro]", "On a cluster: show a volume claim there."),
    "code_claim": (
        "NAME:/path[:ro]",
        "On a cluster: a volume claim that has the code, in place of your folder.",
    ),
    "gpu_kind": ("PRODUCT", "On a cluster: only nodes with these GPUs, such as NVIDIA-H100-80GB-HBM3."),
    "node_selector": ("LABEL=VALUE", "On a cluster: only nodes with this label."),
    "tolerations": ("KEY[=VALUE][:EFFECT]", "On a cluster: also nodes with this taint."),
    "priority": ("CLASS", "On a cluster: priority class of the pods."),
    "queue": ("QUEUE", "On a cluster: local queue of Kueue."),
    "scheduler": ("NAME", "On a cluster: scheduler of the pods, such as gangline-scheduler."),
    "service_account": ("NAME", "On a cluster: service account of the pods."),
    "pull_secrets": ("NAME", "On a cluster: Secret with which the image is pulled."),
    "deadline_s": ("SECONDS", "On a cluster: end the job after this time."),
    "restarts": (
        "N",
        "Start all ranks again when one fails, so often; on a cluster also when a pod is lost.",
    ),
    "env_files": ("FILE", "On a cluster: variables for the ranks, lines of NAME=VALUE."),
}
_REPEATED = ("claims", "node_selector", "tolerations", "pull_secrets", "env_files")


def pod_options(function: F) -> F:
    """Add the options, passed on as one ``pods``."""

    @wraps(function)
    def wrapped(*args: Any, **rest: Any) -> Any:
        given = {field: rest.pop(f"pods_{field}") for field in OPTIONS}
        pods = PodOptions(**{key: value for key, value in given.items() if value is not None})
        return function(*args, pods=pods, **rest)

    described: Any = click.option(
        "--detach", "pods_is_detached", is_flag=True, help="On a cluster: end once the job is created."
    )(wrapped)
    described = click.option(
        "--mpi/--no-mpi",
        "pods_is_mpi",
        default=None,
        help="On a cluster: the image's mpirun starts the ranks, or nothing of MPI does; found out from the "
        "program unless given.",
    )(described)
    for field, (metavar, text) in reversed(_HELP.items()):
        is_number = field in ("deadline_s", "restarts")
        described = click.option(
            OPTIONS[field],
            f"pods_{field}",
            metavar=metavar,
            help=text,
            multiple=field in _REPEATED,
            type=click.IntRange(min=1) if is_number else str,
        )(described)
    return described  # type: ignore[no-any-return]
