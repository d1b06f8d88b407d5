"""``gangline kubeconfig``: how kubectl and other clients reach the one-machine cluster."""

from __future__ import annotations

import click

from gangline.cli.options.target import cluster_option
from gangline.cli.output import say
from gangline.client.home import usable_paths


@click.command("kubeconfig")
@click.option("--path", "show_path", is_flag=True, help="Print the file's path instead of its content.")
@cluster_option
def command(show_path: bool, cluster: str) -> None:
    """Print a kubeconfig for the one-machine cluster, which is started and kept if it is not up.

    It holds the administrator's token: whoever reads it may do everything in this cluster.
    """
    from gangline.cluster.daemon.cluster import Cluster

    paths = usable_paths(cluster)
    Cluster(paths).ensure_up(keep=True, say=say)
    print(paths.kubeconfig if show_path else paths.kubeconfig.read_text().rstrip("\n"))
