"""``gangline up``: start the one-machine cluster and keep it."""

from __future__ import annotations

import time
from typing import Any

import click

from gangline.cli.options.gpus import simulation_options
from gangline.cli.options.images import ImageOptions, describe_map, image_options
from gangline.cli.options.suspension import DEFAULTS, suspension_bounds, suspension_options
from gangline.cli.options.target import cluster_option
from gangline.cli.options.volumes import bind_volumes, read_volumes
from gangline.cli.output import say
from gangline.client.home import usable_paths
from gangline.client.run.gpus import GpuOptions, simulated
from gangline.cluster.paths import DEFAULT_CLUSTER
from gangline.units import plural


@click.command("up")
@click.option("--nodes", type=int, default=1, metavar="M", help="At least this many nodes.  [default: 1]")
@click.option(
    "--isolation",
    type=click.Choice(["auto", "network", "user", "plain"]),
    help="How pods are kept apart: own network (root), own mounts (a user namespace), or plain processes.  "
    "[default: the best that works here]",
)
@click.option(
    "--control-plane",
    type=click.Choice(["own", "kubernetes"]),
    help="What serves the API: Gangline's own server, or etcd, kube-apiserver and kube-controller-manager.  "
    "[default: own]",
)
@click.option(
    "--operator/--no-operator",
    default=None,
    help="Run MPIJobs, or leave them and their definition to an operator that you install; kept.  "
    "[default: run them]",
)
@click.option(
    "--allow-drop-caches/--forbid-drop-caches",
    "drop_caches",
    default=None,
    help="Let NetApp's run.py clear this machine's page caches; kept.  [default: forbidden]",
)
@click.option(
    "--volume",
    "volumes",
    multiple=True,
    metavar="NAME=FOLDER",
    help="A folder of yours as the volume of the claim NAME; kept, also when the claim is deleted.",
)
@simulation_options
@suspension_options
@image_options
@cluster_option
def command(
    nodes: int,
    isolation: str | None,
    control_plane: str | None,
    operator: bool | None,
    drop_caches: bool | None,
    volumes: tuple[str, ...],
    gpus: GpuOptions,
    images: ImageOptions,
    cluster: str,
    **bounds: Any,
) -> None:
    """Start the one-machine cluster, or find it running, and keep it until `gangline down`."""
    from gangline.cluster.daemon.cluster import Cluster

    started = time.monotonic()
    found = Cluster(usable_paths(cluster))
    before = found.status()
    was_up = before.server.state == "held"
    wanted, folders = gpus.simulation, read_volumes(volumes)
    images.planned(found, isolation or "")
    facts = found.ensure_up(
        nodes=nodes,
        isolation=isolation or "",
        keep=True,
        simulation=wanted,
        control_plane=control_plane or "",
        operator=operator,
        suspension=suspension_bounds(bounds, before.facts.suspension if before.facts else DEFAULTS),
        say=say,
    )
    if drop_caches is not None:
        from gangline.cluster.node.run_rights import set_drop_caches

        set_drop_caches(found.paths, drop_caches)
        say(f"page caches: pods may {'' if drop_caches else 'not '}clear them")
    mode = found.isolation_in_use() or facts.isolation
    how = "is up" if was_up else f"started in {time.monotonic() - started:.2f} s"
    say(
        f"cluster `{cluster}` {how}: {plural(facts.nodes, 'node')}{simulated(facts)}, isolation `{mode}`, "
        f"https://127.0.0.1:{facts.port}"
    )
    if outside := found.outside():
        say(f"outside of this machine: {outside}")
    for line in bind_volumes(found, folders):
        say(line)
    for line in describe_map(images.save(found), found.paths):
        say(line)
    if not was_up:
        option = "" if cluster == DEFAULT_CLUSTER else f" --cluster {cluster}"
        say(f"hint: use kubectl with `export KUBECONFIG=$(gangline kubeconfig --path{option})`")
