"""The options that say which cluster a command talks to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gangline.client.target import ClusterTarget
from gangline.cluster.paths import DEFAULT_CLUSTER

F = TypeVar("F", bound=Callable[..., Any])


def target_options(*, namespace: bool = True, short_namespace: bool = True) -> Callable[[F], F]:
    """Add --cluster, --context, --kubeconfig and -n/--namespace, passed on as one ``target``."""

    def decorate(function: F) -> F:
        from functools import wraps

        @wraps(function)
        def wrapped(
            *args: Any,
            cluster: str,
            context: str | None,
            kubeconfig: Path | None,
            namespace: str = "",
            **rest: Any,
        ) -> Any:
            explicit = click.get_current_context().get_parameter_source("cluster")
            if explicit == click.core.ParameterSource.COMMANDLINE and (context or kubeconfig):
                raise click.UsageError(
                    "--cluster is this machine's, --context and --kubeconfig are not: use one"
                )
            target = ClusterTarget(
                cluster=cluster, context=context, kubeconfig=kubeconfig, namespace=namespace
            )
            return function(*args, target=target, **rest)

        options = [
            cluster_option,
            click.option("--context", metavar="CONTEXT", help="A cluster of your kubeconfig instead."),
            click.option(
                "--kubeconfig",
                metavar="FILE",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="The kubeconfig to use instead of the one-machine cluster.",
            ),
        ]
        if namespace:
            names = ["-n", "--namespace"] if short_namespace else ["--namespace"]
            options.append(
                click.option(*names, default="", metavar="NAMESPACE", help="Namespace of the jobs.")
            )
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped  # type: ignore[return-value]

    return decorate


def check_cluster_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse names of clusters that are no plain folder names."""
    import re

    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", value):
        raise click.BadParameter("use at most 32 lower-case letters, digits and `-`", context, parameter)
    return value


def cluster_option(function: F) -> F:
    """Add ``--cluster NAME``: which one-machine cluster of this user."""
    return click.option(
        "--cluster",
        default=DEFAULT_CLUSTER,
        metavar="NAME",
        envvar="GANGLINE_CLUSTER",
        callback=check_cluster_name,
        help="The one-machine cluster of that name.  [default: default]",
    )(function)
