"""What the services that run beside a cluster have in common on the command line."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

if TYPE_CHECKING:
    from gangline.kube.config import Connection

Command = TypeVar("Command", bound=Callable[..., Any])

GARBAGE_THRESHOLDS = 20_000, 20, 20
"""New objects between collections of each generation. With Python's 700 they take a quarter of the time of
reading a pod, as hardly anything here is garbage in a circle."""


class LedValues(TypedDict):
    """Values of the shared options, as a service's own options take them."""

    leader_elect: bool
    lock_namespace: str
    address: str
    health_port: int | None
    metrics_port: int | None


def collect_rarely() -> None:
    """Look for garbage in circles rarely, and not among what was imported until now."""
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def connection_options(*more_names: str) -> Callable[[Command], Command]:
    """Add ``--kubeconfig``, also under other names, and ``--context``."""

    def add(function: Command) -> Command:
        function = click.option("--context", metavar="CONTEXT", help="A context of the kubeconfig.")(function)
        return click.option(
            "--kubeconfig",
            *more_names,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Kubeconfig of the cluster.  [default: the pod's own account inside a cluster, else yours]",
        )(function)

    return add


def led_options(lock_namespace: str, *more_names: str) -> Callable[[Command], Command]:
    """Add the options of leadership, health and metrics.

    Args:
        lock_namespace: the default namespace of the Lease.
        more_names: other names of ``--metrics-port``.
    """
    options = (
        click.option(
            "--leader-elect", is_flag=True, help="Work only while holding a Lease; others stand by."
        ),
        click.option(
            "--lock-namespace",
            default=lock_namespace,
            metavar="NAME",
            show_default=True,
            help="Namespace of that Lease, which must exist.",
        ),
        click.option(
            "--health-port",
            type=click.IntRange(0, 65535),
            default=0,
            metavar="PORT",
            help="Serve /healthz and /readyz.  [default: none]",
        ),
        click.option(
            "--metrics-port",
            *more_names,
            type=click.IntRange(0, 65535),
            default=0,
            metavar="PORT",
            help="Serve /metrics for Prometheus.  [default: none]",
        ),
        click.option(
            "--listen",
            default="127.0.0.1",
            metavar="ADDRESS",
            show_default=True,
            help="Where those ports listen; 0.0.0.0 in a pod.",
        ),
    )

    def add(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def led_values(options: Mapping[str, Any]) -> LedValues:
    """Return what was given for :func:`led_options`."""
    return LedValues(
        leader_elect=options["leader_elect"],
        lock_namespace=options["lock_namespace"],
        address=options["listen"],
        health_port=options["health_port"] or None,
        metrics_port=options["metrics_port"] or None,
    )


def service_connection(kubeconfig: Path | None, context: str | None) -> Connection:
    """Return the connection of the named kubeconfig, inside a cluster of the pod's own account."""
    from gangline.kube.config import in_cluster, load_kubeconfig

    if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    return load_kubeconfig(kubeconfig, context)
